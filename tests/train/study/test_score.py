"""What a run says on its test set, as trained and through a calibrator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.train.config import TrainConfig
from calibrant.train.jobs.rows import row_values
from calibrant.train.jobs.training import TrainJob
from calibrant.train.study.score import higher_is_better, score


def write(folder: Path, split: str, rows: int, sharpness: float) -> None:
    rng = np.random.default_rng(rows)
    labels = rng.integers(0, 3, rows)
    z = sharpness * (rng.normal(size=(rows, 3)) + 1.5 * np.eye(3)[labels])
    source = Source(("a", "b", "c"), (0.5, 0.3, 0.2))
    Predictions(tuple(map(str, range(rows))), labels, z.astype(np.float32), source).write(folder / f"{split}.parquet")


def test_temperature_is_fitted_on_validation_rows_and_mends_what_was_too_sharp(tmp_path: Path) -> None:
    job = TrainJob(TrainConfig(), "trainings/x", "k" * 32)
    folder = tmp_path / "trainings" / "x" / "predictions"
    folder.mkdir(parents=True)
    write(folder, "val", 800, 5.0)
    write(folder, "test", 900, 5.0)
    plain = score(tmp_path, job, "", ("accuracy", "nll", "ece", "tail_accuracy"))
    scaled = score(tmp_path, job, "temperature", ("accuracy", "nll", "ece", "tail_accuracy"))
    assert scaled.metrics["accuracy"] == plain.metrics["accuracy"]
    assert scaled.metrics["nll"] < 0.6 * plain.metrics["nll"]
    assert scaled.metrics["ece"] < 0.5 * plain.metrics["ece"]
    for found in (plain, scaled):
        for metric in ("accuracy", "nll", "tail_accuracy"):
            rows = row_values(metric, found.rows)
            assert rows is not None
            assert rows.mean() == pytest.approx(found.metrics[metric], rel=1e-5)


def test_a_metric_that_was_not_asked_for_before_is_measured_now(tmp_path: Path) -> None:
    job = TrainJob(TrainConfig(), "trainings/x", "k" * 32)
    folder = tmp_path / "trainings" / "x" / "predictions"
    folder.mkdir(parents=True)
    write(folder, "val", 300, 1.0)
    write(folder, "test", 300, 1.0)
    assert set(score(tmp_path, job, "", ("accuracy",)).metrics) == {"accuracy"}
    assert set(score(tmp_path, job, "", ("accuracy", "brier")).metrics) == {"accuracy", "brier"}


def test_foreign_images_are_told_by_the_largest_probability_through_the_view(tmp_path: Path) -> None:
    job = TrainJob(TrainConfig(), "trainings/x", "k" * 32)
    folder = tmp_path / "trainings" / "x" / "predictions"
    folder.mkdir(parents=True)
    write(folder, "val", 300, 1.0)
    source = Source(("a", "b", "c"), (0.5, 0.3, 0.2))
    known = np.array([[2.0, 0, 0], [1.0, 0, 0], [0.4, 0, 0]], np.float32)
    others = np.array([[1.5, 0, 0], [0.0, 0, 0]], np.float32)
    (tmp_path / "foreign").mkdir()
    for file, z in ((folder / "test.parquet", known), (tmp_path / "foreign" / f"{'k' * 16}-noise.parquet", others)):
        Predictions(tuple(map(str, range(len(z)))), np.zeros(len(z), np.int64), z, source).write(file)
    for view in ("", "temperature"):  # pairs that are told apart: 2 of 2, 1 of 2, 1 of 2
        found = score(tmp_path, job, view, ("accuracy",), {"noise": tmp_path})
        assert found.metrics["auroc_noise"] == pytest.approx(4 / 6)
    assert higher_is_better("auroc_noise")
    assert not higher_is_better("ece")
