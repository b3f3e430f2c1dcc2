"""CPU cost of each loss alone, forward and backward, as a multiple of F.cross_entropy in the same run.

    OMP_NUM_THREADS=1 python bench/losses_cost.py [--batch 128 --classes 1000 --features 2048] [--json PATH]

All losses take turns; the best of the rounds counts, in CPU time of one thread. With --step the loss is also set
against a whole training step of a ResNet-50 at 224 px (batch 4, scaled to the batch), once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

from calibrant.train.losses import LOSSES, Loss, create_loss

BARS = {"ls": 6, "mbls": 6, "acls": 6, "focal": 6, "vace": 14, "fedlas-ls": 30, "fedlas-mbls": 30}
SKIPPED = {"logit-adjusted": "the same as balanced-softmax", "cpc": "takes B C^2 pairs: seconds at C = 1000"}


def contenders(batch: int, classes: int, width: int) -> dict[str, Callable[[], None]]:
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(batch, classes, generator=rng).mul(3).requires_grad_()
    y = torch.randint(0, classes, (batch,), generator=rng)
    f = torch.randn(batch, width, generator=rng).relu().requires_grad_()
    index = torch.arange(batch)
    counts = torch.randint(1, 500, (classes,), generator=rng)

    def reference() -> None:
        z.grad = None
        F.cross_entropy(z, y).backward()

    def run(loss: Loss) -> Callable[[], None]:
        logits = z.detach().tanh().requires_grad_() if loss.needs_cosines else z

        def once() -> None:
            logits.grad = f.grad = None
            loss.zero_grad(set_to_none=True)
            loss(logits, y, f, indices=index).backward()

        return once

    losses = {
        name: create_loss(name, num_classes=classes, feature_dim=width, class_counts=counts)
        for name in LOSSES
        if name not in SKIPPED
    }
    return {"F.cross_entropy": reference} | {name: run(loss) for name, loss in losses.items()}


def best_times(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            function()  # warms the cache after the loss before
            start = time.thread_time()
            for _ in range(5):
                function()
            best[name] = min(best[name], (time.thread_time() - start) / 5)
    return best


def resnet50_step(batch: int) -> float:
    """CPU seconds of one forward and backward pass of `batch` images."""
    import timm

    model = timm.create_model("resnet50", num_classes=1000)
    x, y = torch.randn(4, 3, 224, 224), torch.zeros(4).long()
    seconds = []
    for _ in range(2):
        start = time.thread_time()
        F.cross_entropy(model(x), y).backward()
        seconds.append(time.thread_time() - start)
    return min(seconds) * batch / 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    times = best_times(contenders(args.batch, args.classes, args.features), args.rounds)
    step = resnet50_step(args.batch) if args.step else None
    reference = times["F.cross_entropy"]
    print(f"B={args.batch} C={args.classes} D={args.features}, one thread, best of {args.rounds}")
    print(f"{'loss':22s} {'ms':>8s} {'x CE':>7s} {'bar':>5s}" + (f" {'% of ResNet-50 step':>20s}" if step else ""))
    for name, seconds in times.items():
        share = f" {100 * seconds / step:20.4f}" if step else ""
        print(f"{name:22s} {1e3 * seconds:8.3f} {seconds / reference:7.1f} {BARS.get(name, ''):>5}{share}")
    for name, reason in SKIPPED.items():
        print(f"{name:22s} left out: {reason}")
    if args.json:
        rows = {n: {"seconds": t, "ratio": t / reference, "bar": BARS.get(n)} for n, t in times.items()}
        args.json.write_text(json.dumps({"losses": rows, "resnet50_step_seconds": step}, indent=1))


if __name__ == "__main__":
    main()
