"""A training as a job: the run in a folder of its key, what its epochs said in the result."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrant._version import __version__
from calibrant.config import to_table
from calibrant.errors import CalibrantError, ModelError
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.jobs.job import changed
from calibrant.train.recipe import AS_PUBLISHED, laid_over
from calibrant.train.run.folder import CHECKPOINT_FILE, read_config, sha256_of
from calibrant.train.run.history import read_history

# Raised by hand when the same configuration trains to other weights than before.
RESULTS_VERSION = 1
# Jobs name what they change of this.
_LENGTH = {"schedule": {"epochs": 30}}
# What changes where a run lies and how fast it is, and nothing of what comes out.
_FREE = {
    "": ("out",),
    "data": ("cache", "cache_limit_mb", "cache_dir", "workers"),
    "engine": ("checkpoint_minutes", "checkpoint_updates", "tensorboard"),
}


@dataclass(frozen=True)
class TrainJob:
    """`folder`: of the run, below that of the results. `lean`: without what only a resume or TensorBoard reads."""

    config: TrainConfig
    folder: str
    key: str
    lean: bool = False

    def run(self, out: Path) -> dict[str, Any]:
        """A run that was killed goes on at its checkpoint; one whose loss became NaN is a result too."""
        from calibrant.train.engine import fit

        run = out / self.folder
        config = replace(self.config, out=run)
        if not finished(run):
            try:
                fit(config, resume=(run / CHECKPOINT_FILE).is_file())
            except ModelError as error:
                if "the loss became" not in error.what:
                    raise
                return {"config": to_table(config), "failed": error.what}
        result = told(run, config)
        if self.lean:
            (run / CHECKPOINT_FILE).unlink(missing_ok=True)
            shutil.rmtree(run / "tb", ignore_errors=True)
        return result


def finished(run: Path) -> bool:
    """Predictions are the last thing that a run writes."""
    try:
        images = read_config(run)["images"]
    except CalibrantError:
        return False
    return all((run / "predictions" / f"{split}.parquet").is_file() for split in ("val", "test") if split in images)


def told(run: Path, config: TrainConfig) -> dict[str, Any]:
    """The best epoch, every epoch's line, and the mean over epochs of each number that the loss reports.

    Where gradients are clipped also the largest norm that one had before, in the epochs that are not all warm-up.
    """
    lines = read_history(run)
    best = next(line for line in reversed(lines) if line["best"])
    reported: dict[str, list[float]] = {}
    for line in lines:
        for name, value in line["loss"].items():
            if isinstance(value, int | float) and math.isfinite(value):
                reported.setdefault(name, []).append(float(value))
    warm = config.schedule.warmup_epochs or 0.0
    norms = [
        line["train"]["gradient_norm"] for line in lines if line["epoch"] > warm and "gradient_norm" in line["train"]
    ]
    largest = {"largest_gradient_norm": max(norms)} if norms else {}
    return {
        "config": to_table(config), "best_epoch": best["epoch"], "val": best["val"],
        "epochs": [{k: line[k] for k in ("epoch", "train", "val", "loss")} for line in lines],
        "measured": {name: sum(values) / len(values) for name, values in reported.items()}
        | largest | _cost(run, config),
    }  # fmt: skip


def _cost(run: Path, config: TrainConfig) -> dict[str, float]:
    """Of a vision transformer, reduced or not: multiply-accumulates by formula, and CPU seconds an image as measured
    (batch 1, best of ten).
    """
    if config.model.token_reduction is None:
        return {}
    import torch

    from calibrant.train.run.folder import load_run
    from calibrant.train.vit.macs import count_macs

    model = load_run(run)
    network = model.network.network.eval()
    x, best = torch.zeros(1, 3, *model.preprocessing.size), math.inf
    with torch.inference_mode():
        for _ in range(10):
            start = time.process_time()
            network(x)
            best = min(best, time.process_time() - start)
    return {"macs": float(count_macs(network).total), "image_seconds": best}


def train_key(config: TrainConfig, data: str | None = None) -> str:
    """Hash of what a training depends on. data: a hash of the images, which then may lie anywhere."""
    table = changed(to_table(config), to_table(train_config(laid_over(AS_PUBLISHED, _LENGTH))))
    free: Mapping[str, tuple[str, ...]] = (
        _FREE if data is None else {**_FREE, "data": (*_FREE["data"], "path", "layout")}
    )
    if config.model.weights is not None:
        table["model"]["weights"] = sha256_of(config.model.weights)
    for part, names in free.items():
        inner = table if not part else table.get(part, {})
        for name in names:
            inner.pop(name, None)
    parts = [{k: v for k, v in table.items() if v != {}}, data, __version__, RESULTS_VERSION]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
