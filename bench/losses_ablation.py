"""Ablations of VACE and FeDLaS beside the controls that a claim for them needs.

    OMP_NUM_THREADS=1 python bench/losses_ablation.py [--seeds 3] [--json PATH]

Two small problems, an MLP with 64 hidden units: ten Gaussians of spread 0.4 to 2.0, and 8x8 digits with a fifth of the
training labels drawn anew. Columns: accuracy, ECE, O-ECE, U-ECE in %, NLL; means over seeds. Probabilities keep tau.
VACE: tau = 1 (CE), a constant tau at the mean of VACE's, class frequency in the place of scatter, no running average.
FeDLaS: beta = 0 (LS), LS at FeDLaS's own mean alpha, MSP and the largest logit in the place of the norm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.calibration.metrics import accuracy, ece, nll, over_under_ece
from calibrant.train.losses import VACE, FeDLaSLS, LabelSmoothing, Loss, create_loss

WIDTH, CLASSES = 64, 10


@dataclass(frozen=True)
class Data:
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    epochs: int


def gaussians(seed: int) -> Data:
    """Classes of equal size and unequal spread, means on a sphere of radius 5."""
    rng = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, 10, generator=rng)
    means = 5 * means / means.norm(dim=1, keepdim=True)
    spread = torch.linspace(0.4, 2.0, CLASSES)

    def sample(each: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(CLASSES).repeat(each)
        return means[y] + spread[y][:, None] * torch.randn(len(y), 10, generator=rng), y

    return Data(*sample(100), *sample(500), epochs=40)


def noisy_digits(seed: int) -> Data:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    x, y = x[order] / 16, y[order].copy()
    n = len(y) // 2
    noisy = rng.random(len(y)) < 0.2  # the test labels are as noisy, so that calibration means the same there
    y[noisy] = rng.integers(0, CLASSES, int(noisy.sum()))
    tensors = [torch.as_tensor(a) for a in (x[:n].astype("float32"), y[:n], x[n:].astype("float32"), y[n:])]
    return Data(*tensors, epochs=40)


class FrequencyTemperature(VACE):
    """VACE with 1 / class frequency in the place of the scatter, relative to its mean."""

    def __init__(self, counts: Tensor) -> None:
        super().__init__(len(counts), WIDTH)
        rarity = 1 / counts.clamp(min=1).float()
        self.tau = (1 + self.lam * rarity / rarity.mean()).clamp(self.tau_min, self.tau_max)

    def class_temperatures(self) -> Tensor:
        return self.tau


class Net(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.body(x)
        return self.head(f), f


def train(data: Data, loss: Loss, seed: int) -> tuple[dict[str, float], float]:
    """Scores on the test set, and the mean smoothing (FeDLaS) or mean tau (VACE) over the second half of training."""
    torch.manual_seed(seed)
    net = Net(data.x.shape[1])
    opt = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.05, momentum=0.9, weight_decay=5e-4)
    strength: list[float] = []
    for epoch in range(data.epochs):
        loss.train()
        for rows in torch.randperm(len(data.y)).split(64):
            logits, features = net(data.x[rows])
            opt.zero_grad()
            loss(logits, data.y[rows], features).backward()
            opt.step()
        loss.eval()
        if epoch >= data.epochs // 2:
            strength.append(mean_strength(loss, *net(data.x)))
    with torch.no_grad():
        probs = loss.adjust_logits(net(data.x_test)[0]).double().softmax(1).numpy()
    labels = data.y_test.numpy()
    parts = over_under_ece(probs, labels)
    scores = {
        "acc": 100 * accuracy(probs, labels),
        "ece": 100 * float(ece(probs, labels)),
        "o_ece": 100 * parts.over,
        "u_ece": 100 * parts.under,
        "nll": nll(probs, labels),
    }
    return scores, float(np.mean(strength))


def mean_strength(loss: Loss, logits: Tensor, features: Tensor) -> float:
    if isinstance(loss, FeDLaSLS):
        return float(loss.smoothing(logits.detach(), features.detach())[0].mean().detach())
    if isinstance(loss, LabelSmoothing):
        return loss.alpha
    tau = loss.class_temperatures()
    return 1.0 if tau is None else float(tau.mean())


def study(data: Data, seed: int) -> dict[str, dict[str, float]]:
    counts = torch.bincount(data.y, minlength=CLASSES)
    rows: dict[str, dict[str, float]] = {}

    def run(name: str, loss: Callable[[], Loss]) -> float:
        torch.manual_seed(seed)
        rows[name], strength = train(data, loss(), seed)
        rows[name]["strength"] = strength
        return strength

    run("CE (VACE with tau = 1)", lambda: create_loss("ce", num_classes=CLASSES))
    tau = run("VACE", lambda: VACE(CLASSES, WIDTH))
    run("  constant tau, same mean", lambda: VACE(CLASSES, WIDTH, tau_min=tau, tau_max=tau))
    run("  frequency for scatter", lambda: FrequencyTemperature(counts))
    run("  no running average", lambda: VACE(CLASSES, WIDTH, rho=1.0))
    run("  centered (mean tau 1)", lambda: VACE(CLASSES, WIDTH, mode="centered"))
    run("  centered, gauge mean", lambda: VACE(CLASSES, WIDTH, mode="centered", gauge="mean"))
    alpha = run("FeDLaS-LS", lambda: FeDLaSLS(CLASSES))
    run("  beta = 0 (LS .05)", lambda: FeDLaSLS(CLASSES, beta=0.0))
    run("  LS at its mean alpha", lambda: LabelSmoothing(CLASSES, alpha=alpha))
    run("  MSP for the norm", lambda: FeDLaSLS(CLASSES, indicator="msp"))
    run("  largest logit for it", lambda: FeDLaSLS(CLASSES, indicator="max-logit"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for title, make in (("ten Gaussians, unequal spread", gaussians), ("digits, 20 % label noise", noisy_digits)):
        runs = [study(make(seed), seed) for seed in range(args.seeds)]
        table = {name: {k: float(np.mean([run[name][k] for run in runs])) for k in runs[0][name]} for name in runs[0]}
        result[title] = table
        print(f"\n{title}, {args.seeds} seeds")
        print(f"{'':28s} {'acc':>6s} {'ECE':>6s} {'O-ECE':>6s} {'U-ECE':>6s} {'NLL':>6s} {'mean tau or alpha':>18s}")
        for name, row in table.items():
            cells = " ".join(f"{row[k]:6.2f}" for k in ("acc", "ece", "o_ece", "u_ece"))
            print(f"{name:28s} {cells} {row['nll']:6.3f} {row['strength']:18.3f}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
