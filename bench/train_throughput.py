"""Images a CPU second of `calibrant train`, a bare PyTorch loop on decoded pixels, and timm's loader from JPEG files.

    OMP_NUM_THREADS=1 python bench/train_throughput.py [--data DIR] [--model resnet18] [--size 64] [--json OUT]

Same network, batch, optimizer, loss and thread; the contenders take turns, each round builds them anew, and the best
epoch of each counts (the first of a run is left out: it decodes). `bare` holds pixels that are decoded and resized,
flips and normalises them and steps: what it leaves out is what an engine costs. `calibrant` trains on the same pixels
with the same flips through `fit`; its steps are timed, and not what follows an epoch (validation, checkpoint).
`timm, JPEG` is timm's dataset, transform and loader with the loop of its train.py (which its package does not hold);
`calibrant, JPEG` is `fit` with its default crops, whose pixels are decoded once. DATA has train/CLASS; leaves are drawn
without it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.nn import functional as F

from calibrant.train import fit
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.data.sources import read_data
from calibrant.train.data.split import Splits
from calibrant.train.loop.trainer import Trainer
from calibrant.train.model.network import build_network

EPOCHS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = asked.data or drawn(root / "leaves")
        contenders: dict[str, Callable[[], tuple[float, int]]] = {
            "bare": lambda: bare(config(asked, data, root, cropped=False)),
            "calibrant": lambda: ours(config(asked, data, root, cropped=False)),
            "timm, JPEG": lambda: timm_loop(config(asked, data, root, cropped=True), data),
            "calibrant, JPEG": lambda: ours(config(asked, data, root, cropped=True)),
        }
        rounds: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(asked.rounds):
            for name, run in contenders.items():
                seconds, images = run()
                rounds[name].append(round(images / seconds, 2))
    best = {name: max(values) for name, values in rounds.items()}
    ratios = {
        "calibrant over bare": best["calibrant"] / best["bare"],
        "calibrant, JPEG over timm, JPEG": best["calibrant, JPEG"] / best["timm, JPEG"],
    }
    for name, value in best.items():
        print(f"{name:<18}{value:8.1f} images a CPU second")
    for name, value in ratios.items():
        print(f"{name}: {value:.3f}")
    if asked.json:
        about = {k: v for k, v in vars(asked).items() if k not in ("json", "data")}
        about["data"] = "drawn leaves" if asked.data is None else asked.data.name
        asked.json.write_text(
            json.dumps({**about, "images_a_second": best, "rounds": rounds, "ratios": ratios}, indent=1) + "\n"
        )


def drawn(folder: Path) -> Path:
    from calibrant.train.data.leaves import LeafSpec, write_leaves

    write_leaves(folder, LeafSpec(size=128))
    for file in folder.rglob("*.png"):  # of a photograph's kind and size
        Image.open(file).save(file.with_suffix(".jpg"), quality=90)
        file.unlink()
    return folder


def config(asked: argparse.Namespace, data: Path, root: Path, *, cropped: bool) -> TrainConfig:
    """Without validation rows that would count: 4 %, and no test images."""
    return train_config({
        "out": str(root / "run"), "data": {"path": str(data), "workers": 0},
        "model": {"name": asked.model, "image_size": asked.size, "pretrained": False},
        "schedule": {"epochs": EPOCHS}, "optimizer": {"lr": 1e-3},
        "augment": {} if cropped else {"crop": "none"},
        "engine": {"batch_size": asked.batch, "device": "cpu", "tensorboard": False},
    })  # fmt: skip


def splits_of(c: TrainConfig) -> Splits:
    """The training images, of which a few are looked at after each epoch."""
    found = read_data(c.data)
    return Splits(found.class_names, found.train, found.val.rows(range(8)))


def ours(c: TrainConfig) -> tuple[float, int]:
    splits, seconds = splits_of(c), []
    shutil.rmtree(c.out, ignore_errors=True)
    epoch = Trainer._epoch

    def timed(self: Trainer) -> None:
        start = time.process_time()
        epoch(self)
        seconds.append(time.process_time() - start)

    Trainer._epoch = timed  # type: ignore[method-assign]
    try:
        fit(c, splits=splits)
    finally:
        Trainer._epoch = epoch  # type: ignore[method-assign]
    return min(seconds[1:]), len(splits.train) // c.engine.batch_size * c.engine.batch_size


def bare(c: TrainConfig) -> tuple[float, int]:
    splits = splits_of(c)
    network, preprocessing = build_network(c, len(splits.class_names))
    import numpy as np

    pixels = np.stack([preprocessing.pixels(splits.train.image(i)) for i in range(len(splits.train))])
    x, y = torch.from_numpy(pixels), torch.from_numpy(splits.train.labels)
    mean, std = (255 * torch.tensor(v).view(1, 3, 1, 1) for v in (preprocessing.mean, preprocessing.std))
    network.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, weight_decay=0.05)
    batch, times = c.engine.batch_size, [time.process_time()]
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for start in range(0, len(x) - batch + 1, batch):
            rows = order[start : start + batch]
            images = x[rows].permute(0, 3, 1, 2)
            flipped = torch.rand(batch) < 0.5
            images = torch.where(flipped[:, None, None, None], images.flip(3), images)
            z = network(((images.float() - mean) / std).contiguous(memory_format=torch.channels_last))[0]
            F.cross_entropy(z, y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        times.append(time.process_time())
    return _fastest(times), len(x) // batch * batch


def timm_loop(c: TrainConfig, data: Path) -> tuple[float, int]:
    import timm
    from timm.data import create_dataset, create_loader, resolve_data_config
    from timm.optim import create_optimizer_v2

    network: Any = timm.create_model(c.model.name, num_classes=len(splits_of(c).class_names))
    network = network.to(memory_format=torch.channels_last).train()
    size = c.model.image_size
    assert isinstance(size, int)
    seen = resolve_data_config({"input_size": (3, size, size)}, model=network)
    loader = create_loader(
        create_dataset("", root=str(data / "train")), (3, size, size), c.engine.batch_size, is_training=True,
        scale=c.augment.scale, color_jitter=0.0, interpolation=seen["interpolation"], mean=seen["mean"],
        std=seen["std"], num_workers=0, device=torch.device("cpu"),
    )  # fmt: skip
    optimizer = create_optimizer_v2(network, "adamw", 1e-3, weight_decay=0.05)
    times = [time.process_time()]
    for _ in range(EPOCHS):
        for images, labels in loader:
            F.cross_entropy(network(images.contiguous(memory_format=torch.channels_last)), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        times.append(time.process_time())
    return _fastest(times), len(loader) * c.engine.batch_size


def _fastest(times: list[float]) -> float:
    """Of the epochs behind the first."""
    return min(b - a for a, b in zip(times[1:-1], times[2:], strict=True))


if __name__ == "__main__":
    main()
