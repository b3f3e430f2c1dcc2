"""Shards of predictions by tasks of Ray: the real engine in a process of its own, here and on an S3 server."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, PredictionsFile, Source
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.statistics import sidecar
from calibrant.errors import ConfigError

NAMES = tuple(f"class {k}" for k in range(12))


def _rows(n: int, seed: int, *, labelled: bool = True) -> Predictions:
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(n, 12)).astype(np.float32)
    labels = (0.8 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    ids = tuple(f"{seed}/{i}" for i in range(n))
    return Predictions(ids, labels if labelled else np.full(n, -1), logits, Source(NAMES))


def _shards(folder: Path) -> Path:
    for seed, n in enumerate((700, 1500, 40, 900)):
        _rows(n, seed, labelled=seed != 2).write(folder / f"{seed}.parquet")
    return folder


def test_shards_add_up_to_the_file_that_holds_their_rows(tmp_path: Path) -> None:
    folder = _shards(tmp_path / "shards")
    read = PredictionsFile.open(folder).read()
    read.write(tmp_path / "whole.parquet")
    parts, whole = (sidecar.compute(PredictionsFile.open(p)) for p in (folder, tmp_path / "whole.parquet"))
    assert parts.rows == 3100
    for name in ("count", "total"):
        for table in ("right", "wrong_by_true", "probability"):
            a, b = (getattr(getattr(s, table), name) for s in (parts, whole))
            np.testing.assert_allclose(a, b, rtol=0 if name == "count" else 1e-12)
    np.testing.assert_array_equal(parts.confusion_count, whole.confusion_count)
    assert parts.kept is not None
    assert whole.kept is not None
    np.testing.assert_array_equal(parts.kept.confidence, whole.kept.confidence)


def test_what_is_read_whole_is_not_handed_to_ray(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", logits=_rows(50, 1).logits, labels=_rows(50, 1).labels)
    with pytest.raises(ConfigError, match="x.npz: --engine ray reads shards of predictions"):
        evaluate_files([tmp_path / "x.npz"], engine="ray")


@pytest.mark.slow  # 40 s
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_tasks_of_ray_say_the_same_to_the_bit(tmp_path: Path, bucket: Any) -> None:
    folder = _shards(tmp_path / "shards")
    for path in folder.glob("*.parquet"):
        bucket.upload_file(str(path), "models", f"shards/{path.name}")

    def evaluated(where: str, *more: str) -> Any:
        for kept in tmp_path.rglob("*.stats.npz"):  # or Ray would have nothing to do
            kept.unlink()
        done = subprocess.run(
            [sys.executable, "-m", "calibrant", "evaluate", where, "--json", *more],
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        (model,) = json.loads(done.stdout)["models"]
        return model["metrics"]

    ray = ("--engine", "ray", "--ray-address", "local")
    own = evaluated(str(folder))
    assert own["ece"]["value"] > 0
    assert evaluated(str(folder), *ray) == own
    assert evaluated("s3://models/shards", *ray) == own
