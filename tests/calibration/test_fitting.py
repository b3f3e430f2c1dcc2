"""Fitting on a predictions file: what the rows are weighted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def written_as(folder: Path, share: tuple[float, ...], train: tuple[float, ...] | None) -> Path:
    rng = np.random.default_rng(5)
    labels = rng.choice(4, 400, p=share)
    logits = (np.eye(4)[labels] + rng.normal(size=(400, 4))).astype(np.float32)
    path = folder / "val.parquet"
    Predictions(tuple(map(str, range(400))), labels, logits, Source(NAMES, train)).write(path)
    return path


TAIL, EVEN = (0.7, 0.1, 0.1, 0.1), (0.25,) * 4


@pytest.mark.parametrize(
    ("share", "train", "options", "said"),
    [
        (TAIL, TAIL, {}, None),
        (EVEN, TAIL, {}, "--target-prior train"),
        (EVEN, TAIL, {"target_prior": "train"}, None),  # weighted to it
        (EVEN, None, {}, None),
        (EVEN, TAIL, {"adjust": 1.0}, None),
        (TAIL, TAIL, {"adjust": 1.0}, "add --rows-follow train"),
        (TAIL, TAIL, {"adjust": 1.0, "rows_follow": "train"}, None),
        (TAIL, (0.1, 0.1, 0.1, 0.7), {"adjust": 1.0}, "--target-prior shares:"),
        (EVEN, TAIL, {"adjust": 1.0, "rows_follow": "train"}, "--rows-follow train, but"),
        (EVEN, TAIL, {"adjust": 1.0, "target_prior": "0.7,0.1,0.1,0.1"}, "--target-prior shares:"),
    ],
)
def test_rows_with_other_shares_than_they_are_taken_to_have_are_named(
    tmp_path: Path, share: tuple[float, ...], train: tuple[float, ...] | None, options: dict[str, Any], said: str | None
) -> None:
    note = fit_file(written_as(tmp_path, share, train), **options).fitted_on.get("note")
    assert (note is None) == (said is None), note
    assert said is None or said in note
    assert said is None or "ash 2" in note or "ash 7" in note or "oak" in note  # the class that is furthest off


def test_the_call_that_is_offered_has_nothing_left_to_say(tmp_path: Path) -> None:
    path = written_as(tmp_path, EVEN, TAIL)
    assert "note" not in fit_file(path, adjust=1.0, target_prior=f"shares:{path}").fitted_on
