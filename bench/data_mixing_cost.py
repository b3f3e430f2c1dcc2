"""CPU cost of superpixel mixing and patch transplants, as shares of a training step.

    OMP_NUM_THREADS=1 python bench/data_mixing_cost.py [--networks resnet50:224,resnet18:64] [--batch 16] [--json PATH]

The parts of a mixed batch (superpixels, class map, spectral residual, pasting) and of a batch with transplants in half
of its rows, best of some rounds in CPU time of one thread, beside the step of the same network (forward, CE, backward,
SGD).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from calibrant.train.augment.mix import mix_donors, mix_superpixels
from calibrant.train.augment.saliency import class_map, spectral_residual
from calibrant.train.augment.superpixels import superpixels
from calibrant.train.config import AugmentConfig
from calibrant.train.model.feature_model import build_model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default="resnet50:224,convnext_tiny:224,vit_small_patch16_224:224,resnet18:64")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(f"{'network':26} {'step':>8} {'part':20} {'ms/image':>9} {'of the step':>12}")
    for network in asked.networks.split(","):
        name, size = network.split(":")
        found = measure(name, int(size), asked.batch, asked.rounds)
        step = found["step"]
        for part, ms in found.items():
            rows.append({"network": network, "part": part, "ms_per_image": ms, "of_the_step": ms / step})
            print(f"{network:26} {step:8.1f} {part:20} {ms:9.2f} {ms / step:12.1%}")
    if asked.json:
        asked.json.write_text(json.dumps({"batch": asked.batch, "rows": rows}, indent=2) + "\n")


def measure(name: str, size: int, batch: int, rounds: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = build_model(name, 100, input_size=(size, size)).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x = torch.randn(batch, 3, size // 8, size // 8)
    x = F.interpolate(x, (size, size), mode="bicubic").contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 100, (batch,))
    rows = torch.arange(0, batch, 2)
    config = AugmentConfig(superpixel_mix=3, transplant=0.5)
    maps = class_map(model)
    known = maps(x, y)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x)[0], y).backward()
        optimizer.step()

    def mixed(saliency: Callable[..., torch.Tensor]) -> None:
        mix_superpixels(x, y, config, np.random.default_rng(0), saliency)

    def transplanted(saliency: Callable[..., torch.Tensor]) -> None:
        mix_donors(x, y, x[rows], y[rows], rows, config, np.random.default_rng(0), saliency)

    parts: dict[str, Callable[[], object]] = {
        "step": step, "class map": lambda: maps(x, y), "spectral residual": lambda: spectral_residual(x),
        "superpixels": lambda: superpixels(x, 40), "mix, known map": lambda: mixed(lambda *_: known),
        "mix, class map": lambda: mixed(maps), "mix, spectral": lambda: mixed(spectral_residual),
        "transplant, class map": lambda: transplanted(maps),
        "transplant, spectral": lambda: transplanted(spectral_residual),
    }  # fmt: skip
    return {part: 1e3 * best(function, rounds) / batch for part, function in parts.items()}


def best(function: Callable[[], object], rounds: int) -> float:
    function()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
