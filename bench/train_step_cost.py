"""CPU cost of a whole training step with each loss, as a multiple of the step with cross-entropy.

    OMP_NUM_THREADS=1 python bench/train_step_cost.py [--models resnet50,convnext_tiny] [--size 112] [--batch 16]
                                                      [--json PATH]

Forward through FeatureModel, loss, backward, SGD with momentum. Losses take turns on one network; the best round
counts, in CPU time of one thread. With neighbours on the machine whole steps differ by more than a loss costs, so a
second column sets what the loss itself adds (timed alone, on logits and features of that step) against the step:
1 + (loss - CE) / step. Images smaller than 224 px make the network cheaper and the test stricter.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from calibrant.train.losses import create_loss
from calibrant.train.model import build_model

BAR = 1.02
LOSSES = ("ce", "vace", "fedlas-ls", "fedlas-mbls", "mbls")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="resnet50,convnext_tiny")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in asked.models.split(",") for row in measure(name, asked)]
    print(f"{'model':16} {'loss':12} {'step s':>8} {'x CE':>7} {'loss ms':>8} {'1+added':>8}")
    for row in rows:
        print(
            f"{row['model']:16} {row['loss']:12} {row['step_s']:8.3f} {row['ratio']:7.3f} "
            f"{row['loss_ms']:8.3f} {row['added']:8.4f}{'' if row['added'] <= BAR else '  over the bar'}"
        )
    if asked.json:
        asked.json.write_text(
            json.dumps({"bar": BAR, "batch": asked.batch, "size": asked.size, "rows": rows}, indent=2)
        )


def measure(name: str, asked: argparse.Namespace) -> list[dict[str, float | str]]:
    torch.manual_seed(0)
    size = (asked.size, asked.size)
    network = build_model(name, asked.classes, input_size=size).to(memory_format=torch.channels_last).train()
    x = torch.randn(asked.batch, 3, *size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, asked.classes, (asked.batch,))
    losses = {loss: create_loss(loss, num_classes=asked.classes, feature_dim=network.feature_dim) for loss in LOSSES}
    optimizer = torch.optim.SGD([*network.parameters(), *(p for m in losses.values() for p in m.parameters())], lr=1e-4,
                                momentum=0.9)  # fmt: skip
    logits, features = (t.detach() for t in network(x))

    def step(loss: str) -> None:
        optimizer.zero_grad(set_to_none=True)
        z, f = network(x)
        losses[loss](z, y, f, torch.arange(len(y))).backward()
        optimizer.step()

    def alone(loss: str) -> None:
        z = logits.clone().requires_grad_()
        losses[loss](z, y, features, torch.arange(len(y))).backward()

    whole = best({loss: lambda loss=loss: step(loss) for loss in LOSSES}, asked.rounds)  # type: ignore[misc]
    own = best({loss: lambda loss=loss: alone(loss) for loss in LOSSES}, 30)  # type: ignore[misc]
    return [
        {
            "model": name, "loss": loss, "step_s": whole[loss], "ratio": whole[loss] / whole["ce"],
            "loss_ms": 1e3 * own[loss], "added": 1 + (own[loss] - own["ce"]) / whole["ce"],
        }
        for loss in LOSSES
    ]  # fmt: skip


def best(functions: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    times = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.thread_time()
            function()
            times[name] = min(times[name], time.thread_time() - start)
    return times


if __name__ == "__main__":
    main()
