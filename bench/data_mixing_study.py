"""What mixing does to a long-tailed classifier: none, mixup, cutmix, superpixel mixing and transplants on drawn leaves.

    OMP_NUM_THREADS=1 python bench/data_mixing_study.py [--seeds 3] [--epochs 40] [--imbalance 10] [--json PATH]

Each row is one training of a small network from scratch by the engine on the same drawn images (another drawing for
each seed), scored on a balanced test set: accuracy, accuracy of the rarest third of classes, NLL and ECE of the raw
softmax. Differences to `none` are paired by seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration import metrics
from calibrant.calibration.softmax import softmax
from calibrant.train import fit, train_config
from calibrant.train.data.leaves import LeafSpec, write_leaves

VARIANTS: dict[str, dict[str, Any]] = {
    "none": {},
    "mixup": {"mixup": 0.4, "mix_prob": 0.5},
    "cutmix": {"cutmix": 1.0, "mix_prob": 0.5},
    "superpixel mix": {"superpixel_mix": 3, "superpixels": [15, 30], "mix_prob": 0.5},
    "superpixel mix, spectral": {
        "superpixel_mix": 3, "superpixels": [15, 30], "mix_prob": 0.5, "saliency": "spectral",
    },
    "transplant": {"transplant": 0.3},
    "transplant, spectral": {"transplant": 0.3, "saliency": "spectral"},
}  # fmt: skip
COLUMNS = ("accuracy", "rare_third", "nll", "ece")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--imbalance", type=float, default=10.0)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--model", default="test_resnet")
    parser.add_argument("--only", help="Variants, separated by commas.")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = asked.only.split(",") if asked.only else list(VARIANTS)
    rows = []
    for seed in range(asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            spec = LeafSpec(
                train_images=asked.images, val_images=asked.images // 2, inter=1.2, imbalance=asked.imbalance, seed=seed
            )
            images = write_leaves(Path(folder) / "images", spec)
            for variant in chosen:
                rows.append({"seed": seed, "variant": variant, **train(variant, seed, images, Path(folder), asked)})
                print(
                    " ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{v}" for k, v in rows[-1].items()),
                    flush=True,
                )
        if asked.json:  # a study that is stopped has told what it knows
            asked.json.write_text(json.dumps({"settings": {k: str(v) for k, v in vars(asked).items()}, "rows": rows},
                                             indent=2) + "\n")  # fmt: skip
    print(f"\n{'variant':26}" + "".join(f"{c:>22}" for c in COLUMNS))
    for variant in chosen:
        print(f"{variant:26}" + "".join(f"{summary(rows, variant, column):>22}" for column in COLUMNS))


def train(variant: str, seed: int, images: Path, folder: Path, asked: argparse.Namespace) -> dict[str, float]:
    run = fit(
        train_config({
            "out": str(folder / "run"), "seed": seed, "data": {"path": str(images)},
            "augment": {"crop": "pad", "pad": 0.1, "flip": "both", **VARIANTS[variant]},
            "model": {"name": asked.model, "image_size": 64, "crop_pct": 1.0}, "optimizer": {"lr": 4e-3},
            "schedule": {"epochs": asked.epochs, "warmup_epochs": 3},
            "engine": {"batch_size": 64, "tensorboard": False, "device": "cpu", "select": "nll"},
        }),
        overwrite=True,
    )  # fmt: skip
    found = read_predictions(run / "predictions" / "test.parquet")
    probs, labels = softmax(found.logits), np.asarray(found.labels, np.int64)
    rare = labels >= probs.shape[1] - probs.shape[1] // 3  # classes are drawn from the most frequent to the rarest
    return {
        "accuracy": metrics.accuracy(probs, labels),
        "rare_third": metrics.accuracy(probs[rare], labels[rare]),
        "nll": metrics.nll(probs, labels),
        "ece": metrics.ece(probs, labels),
    }


def summary(rows: list[dict[str, Any]], variant: str, column: str) -> str:
    own = {r["seed"]: r[column] for r in rows if r["variant"] == variant}
    base = {r["seed"]: r[column] for r in rows if r["variant"] == "none"}
    mean = statistics.mean(own.values())
    gains = [own[s] - base[s] for s in own if s in base]
    if variant == "none" or len(gains) < 2:
        return f"{mean:.4f}"
    error = statistics.stdev(gains) / len(gains) ** 0.5
    return f"{mean:.4f} {statistics.mean(gains):+.4f}({error:.4f})"


if __name__ == "__main__":
    main()
