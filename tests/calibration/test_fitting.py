"""Fitting on a predictions file: what the rows are weighted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration import fit
from calibrant.calibration.fitting import fit_file
from calibrant.errors import ConfigError

NAMES = ("ash", "birch", "elm", "oak")


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three quarters ash, some birch and elm, no oak; the logits are twice too sharp."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, 300, p=(0.75, 0.15, 0.1))
    logits = rng.normal(0, 1, (300, 4))
    logits[np.arange(300), labels] += 1.0
    return (2 * logits).astype(np.float32), labels.astype(np.int64)


def written(folder: Path) -> Path:
    logits, labels = rows()
    ids = tuple(map(str, range(300)))
    Predictions(ids, labels, logits, Source(NAMES, (0.7, 0.1, 0.1, 0.1))).write(folder / "val.parquet")
    return folder / "val.parquet"


def test_a_uniform_target_gives_no_weight_to_a_class_without_rows(tmp_path: Path) -> None:
    """Ash, birch and elm count alike, a third each; oak cannot count at all."""
    logits, labels = rows()
    weights = (1 / 3) / (np.bincount(labels, minlength=3) / 300)
    wanted = fit("temperature", logits, labels, weights=weights[labels]).parameters["temperature"]
    found = fit_file(written(tmp_path), target_prior="uniform")
    assert found.parameters["temperature"] == pytest.approx(wanted)
    assert wanted != pytest.approx(fit("temperature", logits, labels).parameters["temperature"], rel=1e-3)


def test_a_target_that_counts_on_a_class_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no share in the data"):
        fit_file(written(tmp_path), target_prior="0.25,0.25,0.25,0.25")
    assert fit_file(written(tmp_path), target_prior="0.5,0.25,0.25,0").method == "temperature"


def test_rows_that_follow_training_need_a_correction_to_come_after(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="add --adjust 1"):
        fit_file(written(tmp_path), rows_follow="train")
