"""Out-of-fold rows: nobody judges what it was trained on, neither the head nor the temperature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.artifacts.predictions import Predictions, PredictionsFile, Source
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.fitting import fit_file
from calibrant.errors import DataError
from calibrant.train.data.folds import stable_folds
from calibrant.train.heads.config import head_config
from calibrant.train.heads.cross_validation import cross_validate, difference, tempered_nll

CONFIG = head_config({}, ["head.kind=ncm"])


def toy(n: int = 30) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    x = rng.normal(size=(n, 4)).astype(np.float32) + np.eye(3, 4, dtype=np.float32)[y]
    return torch.from_numpy(x), y.astype(np.int64), stable_folds(y, [str(i) for i in range(n)], 5)


def test_a_row_has_no_part_in_the_head_that_judges_it() -> None:
    x, y, folds = toy()
    before = cross_validate(CONFIG, x, y, folds, 3)
    moved = x.clone()
    inside = torch.from_numpy(np.flatnonzero(folds == 2))
    moved[inside] += 7
    after = cross_validate(CONFIG, moved, y, folds, 3)
    alone = cross_validate(CONFIG, x, y, np.where(folds == 2, 2, -1), 3)  # the same head, by the other rows alone
    assert np.array_equal(alone.logits, before.logits[folds == 2])
    assert not np.allclose(before.logits[folds != 2], after.logits[folds != 2])


def test_rows_of_no_fold_train_and_are_not_judged() -> None:
    x, y, folds = toy()
    folds[:3] = -1
    out = cross_validate(CONFIG, x, y, folds, 3)
    assert out.rows.tolist() == list(range(3, 30))
    with pytest.raises(DataError, match="one image only"):
        cross_validate(CONFIG, x, y, np.full(30, -1), 3)


def test_temperature_of_a_row_is_that_of_the_others() -> None:
    """Fold 0 is right and sure, fold 1 is wrong by halves: each gets what the other one asks for."""
    z = np.asarray([[2.0, 0.0]] * 4 + [[2.0, 0.0]] * 4)
    labels = np.asarray([0, 0, 0, 1, 0, 1, 0, 1])
    folds = np.repeat([0, 1], 4)
    nll = tempered_nll(z, labels, folds)
    assert nll[:4] == pytest.approx(np.log(2) * np.ones(4), abs=0.03)  # T of fold 1: as good as a coin
    assert nll[4] == pytest.approx(-np.log(0.75), abs=1e-6)  # T of fold 0: three of four are right
    assert nll[5] == pytest.approx(-np.log(0.25), abs=1e-6)


def test_a_shift_is_taken_off_after_the_temperature() -> None:
    z = np.zeros((6, 2))
    shift = -np.log([0.8, 0.2])
    nll = tempered_nll(z, np.zeros(6, np.int64), np.arange(6) % 2, shift=shift)
    assert nll == pytest.approx(-np.log(0.8) * np.ones(6))


def test_paired_difference_by_hand() -> None:
    mean, error = difference(np.asarray([1.0, 2.0, 4.0]), np.asarray([0.0, 2.0, 2.0]))
    assert mean == 1.0
    assert error == pytest.approx(1 / np.sqrt(3))


def test_rows_out_of_fold_calibrate_by_their_own_folds_which_are_no_groups(tmp_path: Path) -> None:
    """A file of `calibrant head --set data.folds`: whoever was fitted on it is judged by its folds, unasked."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 300)
    logits = (3 * np.eye(3)[labels] + 2 * rng.normal(size=(300, 3))).astype(np.float32)
    folds = tuple(str(i % 4) for i in range(300))
    rows = Predictions(
        tuple(map(str, range(300))), labels, logits, Source(("a", "b", "c"), (0.3, 0.3, 0.4)), split=("oof",) * 300,
        groups={"fold": folds},
    )  # fmt: skip
    rows.write(tmp_path / "oof.parquet")
    calibrator = fit_file(tmp_path / "oof.parquet")
    assert calibrator.fitted_on["rows_are"] == "oof"
    calibrator.save(tmp_path / "c.json")
    _, through = evaluate_files([tmp_path / "oof.parquet"], [tmp_path / "c.json"])
    expected = tempered_nll(logits, labels, np.asarray(folds, np.int64)).mean()
    assert through.evaluation.metrics["nll"].value == pytest.approx(expected, rel=1e-6)
    assert not through.in_sample
    assert PredictionsFile.open(tmp_path / "oof.parquet").group_columns() == {}


def test_rows_that_trained_are_refused_for_calibration(tmp_path: Path) -> None:
    z = 3 * np.eye(2, dtype=np.float32) - 1
    Predictions(("a", "b"), np.arange(2), z, Source(("x", "y")), split=("train",) * 2).write(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="that the model was trained on"):
        fit_file(tmp_path / "t.parquet")
