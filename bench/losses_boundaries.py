"""Decision boundaries of two Gaussian classes in the plane for different tau, as SVG.

    python bench/losses_boundaries.py OUT.svg [--json PATH]

A network of 32 hidden units is trained on a wide and a narrow class with CE, with VACE and with fixed temperatures.
One panel each: the probability of the wide class as softmax(z / tau) in colour, the boundary with tau (solid) and of
the raw logits (dashed). Where the two lines differ, predicting with raw logits is not what was trained.
The JSON holds what can be read off: share of the plane given to the wide class by either rule, and test errors.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.train.losses import VACE, Loss, create_loss

EXTENT, GRID = 6.0, 160


class FixedTemperature(VACE):
    """VACE with given class temperatures."""

    def __init__(self, tau: list[float]) -> None:
        super().__init__(len(tau), 2)
        self.fixed = torch.tensor(tau)

    def _update(self, z: Tensor, target: object, features: Tensor | None) -> None:
        """No statistics."""

    def class_temperatures(self) -> Tensor:
        return self.fixed


def sample(each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Class 0: spread 1.6 around (-1.5, 0); class 1: spread .6 around (1.5, 0)."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(2).repeat(each)
    centre = torch.tensor([[-1.5, 0.0], [1.5, 0.0]])
    return centre[y] + torch.tensor([1.6, 0.6])[y][:, None] * torch.randn(2 * each, 2, generator=rng), y


def panels() -> dict[str, Loss]:
    return {
        "CE (tau = 1)": create_loss("ce", num_classes=2),
        "VACE": VACE(2, 2),
        "VACE, centered": VACE(2, 2, mode="centered"),
        "VACE, centered, gauge mean": VACE(2, 2, mode="centered", gauge="mean"),
        "tau = (2, 0.5)": FixedTemperature([2.0, 0.5]),
        "tau = (0.5, 2)": FixedTemperature([0.5, 2.0]),
    }


def train(loss: Loss) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    x, y = sample(300, 0)
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        opt.zero_grad()
        loss(net(x), y, x).backward()  # the inputs are the features: scatter can be seen in the picture
        opt.step()
    loss.eval()
    return net


def measure(net: nn.Module, loss: Loss, plane: Tensor) -> tuple[dict[str, float | list[float]], Tensor, Tensor]:
    x, y = sample(5000, 1)
    with torch.no_grad():
        raw, adjusted = net(plane), loss.adjust_logits(net(plane))
        z = net(x)
        tau = loss.class_temperatures()
        numbers: dict[str, float | list[float]] = {
            "tau": [1.0, 1.0] if tau is None else tau.tolist(),
            "plane_wide_tau": float((adjusted.argmax(1) == 0).float().mean()),
            "plane_wide_raw": float((raw.argmax(1) == 0).float().mean()),
            "error_tau": float((loss.adjust_logits(z).argmax(1) != y).float().mean()),
            "error_raw": float((z.argmax(1) != y).float().mean()),
        }
    return numbers, raw, adjusted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    torch.set_num_threads(1)
    axis = np.linspace(-EXTENT, EXTENT, GRID, dtype=np.float32)
    gx, gy = np.meshgrid(axis, axis)
    plane = torch.tensor(np.stack([gx.ravel(), gy.ravel()], 1))
    x, y = sample(150, 2)
    figure, axes = plt.subplots(2, 3, figsize=(11, 7.4), constrained_layout=True)
    result = {}
    print(f"{'':28s} {'tau':>14s} {'wide class: tau':>16s} {'raw':>6s} {'error: tau':>11s} {'raw':>6s}")
    for (name, loss), ax in zip(panels().items(), axes.flat, strict=True):
        net = train(loss)
        numbers, raw, adjusted = measure(net, loss, plane)
        result[name] = numbers
        shape = (GRID, GRID)
        ax.pcolormesh(
            gx, gy, adjusted.softmax(1)[:, 0].reshape(shape), cmap="RdBu", vmin=-0.3, vmax=1.3, rasterized=True
        )
        for z, style in ((adjusted, "solid"), (raw, "dashed")):
            ax.contour(gx, gy, (z[:, 0] - z[:, 1]).reshape(shape), levels=[0], colors="black", linestyles=style)
        ax.scatter(*x.T, c=y, s=12, cmap="coolwarm", edgecolors="white", linewidths=0.4)
        tau = ", ".join(f"{t:.2f}" for t in numbers["tau"])  # type: ignore[union-attr]
        ax.set_title(f"{name}\ntau = ({tau})", fontsize=10)
        ax.set_aspect("equal")
        print(
            f"{name:28s} {tau:>14s} {100 * numbers['plane_wide_tau']:15.1f}% {100 * numbers['plane_wide_raw']:5.1f}%"  # type: ignore[operator]
            f" {100 * numbers['error_tau']:10.2f}% {100 * numbers['error_raw']:5.2f}%"  # type: ignore[operator]
        )
    figure.savefig(args.out)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
