"""Both right ways to correct for a class prior, and the wrong ones, on a toy whose Bayes error is known.

Ten Gaussians in ten dimensions, training counts 1000 to 10, balanced test set, linear softmax fitted to convergence.
    python bench/losses_longtail.py [--draws 10] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from calibrant.train.losses import BalancedSoftmax, CrossEntropy, Loss, post_hoc_logits

CLASSES, SCALE = 10, 0.77  # the scale of the means that puts the mean Bayes error at 29 %


def draw(seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, 10, generator=rng, dtype=torch.float64) * SCALE
    counts = torch.logspace(3, 1, CLASSES, dtype=torch.float64).round().long()
    y = torch.repeat_interleave(torch.arange(CLASSES), counts)
    y_test = torch.arange(CLASSES).repeat(1000)

    def sample(labels: Tensor) -> Tensor:
        return means[labels] + torch.randn(len(labels), 10, generator=rng, dtype=torch.float64)

    return {"means": means, "counts": counts, "x": sample(y), "y": y, "x_test": sample(y_test), "y_test": y_test}


def fit(loss: Loss, x: Tensor, y: Tensor) -> nn.Linear:
    head = nn.Linear(x.shape[1], CLASSES).double()
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    opt = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

    def closure() -> Tensor:
        opt.zero_grad()
        value = loss(head(x), y) + 1e-5 * head.weight.square().sum()  # keeps rare, separable classes bounded
        value.backward()
        return value

    opt.step(closure)  # type: ignore[no-untyped-call]
    return head


def errors(data: dict[str, Tensor]) -> dict[str, tuple[float, float, float]]:
    """Rule -> balanced error in %: all classes, the three largest, the three smallest."""
    counts = data["counts"]
    heads = {
        tau: fit(BalancedSoftmax(CLASSES, counts, tau=tau) if tau else CrossEntropy(CLASSES), data["x"], data["y"])
        for tau in (0.0, 1.0, -1.0)
    }
    z = {tau: head(data["x_test"]).detach() for tau, head in heads.items()}

    def score(z: Tensor) -> tuple[float, float, float]:
        wrong = (z.argmax(1) != data["y_test"]).double().reshape(-1, CLASSES).mean(0) * 100
        return float(wrong.mean()), float(wrong[:3].mean()), float(wrong[-3:].mean())

    adjust: Callable[[Tensor, float], Tensor] = lambda z, tau: post_hoc_logits(z, counts, tau=tau)  # noqa: E731
    return {
        "Bayes": score(-torch.cdist(data["x_test"], data["means"])),
        "CE": score(z[0.0]),
        "balanced softmax, raw at test": score(z[1.0]),
        "CE, -log pi at test": score(adjust(z[0.0], 1.0)),
        "-log pi in training (wrong sign)": score(z[-1.0]),
        "CE, +log pi at test (wrong sign)": score(adjust(z[0.0], -1.0)),
        "balanced softmax, +log pi kept at test": score(adjust(z[1.0], -1.0)),
        "balanced softmax and -log pi at test (twice)": score(adjust(z[1.0], 1.0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = [errors(draw(seed)) for seed in range(args.draws)]
    table = {rule: torch.tensor([run[rule] for run in runs]).mean(0).tolist() for rule in runs[0]}
    print(f"{'rule':46s} {'error':>7s} {'head-3':>7s} {'tail-3':>7s}   (%, {args.draws} draws)")
    for rule, row in table.items():
        print(f"{rule:46s} " + " ".join(f"{v:7.2f}" for v in row))
    if args.json:
        args.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
