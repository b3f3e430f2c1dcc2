"""CPU cost of a whole training step with each loss, as a multiple of the step with cross-entropy.

    OMP_NUM_THREADS=1 python bench/train_step_cost.py [--models resnet50,convnext_tiny] [--size 128] [--batch 16]
                                                      [--rounds 12] [--json PATH]

Forward through FeatureModel, loss, backward, SGD with momentum, in CPU time of one thread. Losses take turns on one
network, in an order that rotates. Two readings of the same steps: `best`, the fastest step of a loss over the fastest
with CE, and `median`, over rounds, of a loss's step over CE's in its round. Neighbours on the machine move both by a
per cent or two, which is more than a loss costs, so a third column sets what the loss alone adds (timed on logits and
features of that step) against the step: 1 + (loss - CE) / step. Images smaller than 224 px make the network cheaper
and the test stricter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from calibrant.train.losses import create_loss
from calibrant.train.model.feature_model import build_model

BAR = 1.02
LOSSES = ("ce", "vace", "fedlas-ls", "fedlas-mbls")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="resnet50,convnext_tiny")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in asked.models.split(",") for row in measure(name, asked)]
    print(f"{'model':14} {'loss':12} {'step s':>7} {'best':>7} {'median':>7} {'loss ms':>8} {'1+added':>8}")
    for row in rows:
        over = "" if float(row["best"]) <= BAR and float(row["added"]) <= BAR else "  over the bar"
        print(
            f"{row['model']:14} {row['loss']:12} {row['step_s']:7.3f} {row['best']:7.3f} {row['median']:7.3f} "
            f"{row['loss_ms']:8.3f} {row['added']:8.4f}{over}"
        )
    if asked.json:
        asked.json.write_text(
            json.dumps({"bar": BAR, "batch": asked.batch, "size": asked.size, "rounds": asked.rounds, "rows": rows},
                       indent=2) + "\n"
        )  # fmt: skip


def measure(name: str, asked: argparse.Namespace) -> list[dict[str, float | str]]:
    torch.manual_seed(0)
    size = (asked.size, asked.size)
    network = build_model(name, asked.classes, input_size=size).to(memory_format=torch.channels_last).train()
    x = torch.randn(asked.batch, 3, *size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, asked.classes, (asked.batch,))
    losses = {loss: create_loss(loss, num_classes=asked.classes, feature_dim=network.feature_dim) for loss in LOSSES}
    optimizers = {
        loss: torch.optim.SGD([*network.parameters(), *losses[loss].parameters()], lr=1e-4, momentum=0.9)
        for loss in LOSSES
    }
    logits, features = (t.detach() for t in network(x))

    def step(loss: str) -> None:
        optimizers[loss].zero_grad(set_to_none=True)
        z, f = network(x)
        losses[loss](z, y, f, torch.arange(len(y))).backward()
        optimizers[loss].step()

    def alone(loss: str) -> None:
        z = logits.clone().requires_grad_()
        losses[loss](z, y, features, torch.arange(len(y))).backward()

    for loss in LOSSES:  # momentum buffers come into being, caches fill
        step(loss)
    whole = timed(step, asked.rounds)
    own = {loss: min(times) for loss, times in timed(alone, 40).items()}
    best = {loss: min(times) for loss, times in whole.items()}
    return [
        {
            "model": name, "loss": loss, "step_s": best[loss], "best": best[loss] / best["ce"],
            "median": statistics.median(t / ce for t, ce in zip(whole[loss], whole["ce"], strict=True)),
            "loss_ms": 1e3 * own[loss], "added": 1 + (own[loss] - own["ce"]) / best["ce"],
        }
        for loss in LOSSES
    ]  # fmt: skip


def timed(function: Callable[[str], None], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {loss: [] for loss in LOSSES}
    for i in range(rounds):
        turn = i % len(LOSSES)
        for loss in (*LOSSES[turn:], *LOSSES[:turn]):
            start = time.thread_time()
            function(loss)
            times[loss].append(time.thread_time() - start)
    return times


if __name__ == "__main__":
    main()
