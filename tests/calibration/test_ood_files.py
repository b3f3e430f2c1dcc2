"""Foreign rows by file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.calibrators import fit
from calibrant.calibration.cli.evaluate import evaluate
from calibrant.calibration.ood_files import evaluate_ood
from calibrant.errors import ConfigError, DataError

NAMES = ("ant", "bee", "cow")


def write(
    path: Path, rows: int, sharp: float, *, features: bool = True, known: bool = True, names: tuple[str, ...] = NAMES
) -> Path:
    rng = np.random.default_rng(rows)
    labels = np.arange(rows) % 3
    f = rng.normal(size=(rows, 3)) + sharp * np.eye(3)[labels]
    Predictions(
        tuple(map(str, range(rows))), labels if known else np.full(rows, -1), (2 * f).astype(np.float32), Source(names),
        f.astype(np.float32) if features else None, label_names=None if known else ("insect",) * rows,
    ).write(path)  # fmt: skip
    return path


def test_every_score_that_the_files_allow(tmp_path: Path) -> None:
    known, val = write(tmp_path / "test.parquet", 300, 4.0), write(tmp_path / "val.parquet", 200, 4.0)
    foreign = write(tmp_path / "insects.parquet", 240, 0.0, known=False)
    rows, notes = evaluate_ood([known], [foreign], reference=val)
    assert [r.score for r in rows] == ["energy", "MSP", "max logit", "feature norm", "Mahalanobis", "kNN"]
    assert {(r.model, r.foreign, r.known_rows, r.foreign_rows) for r in rows} == {("test", "insects", 300, 240)}
    assert all(r.auroc.value > 0.8 for r in rows)
    assert notes == []


def test_what_is_left_out_is_said_with_what_to_give(tmp_path: Path) -> None:
    known = write(tmp_path / "test.parquet", 30, 4.0, features=False)
    foreign = write(tmp_path / "insects.parquet", 24, 0.0, features=False)
    rows, notes = evaluate_ood([known], [foreign])
    assert [r.score for r in rows] == ["energy", "MSP", "max logit"]
    assert "predict with --features" in notes[0]
    both = evaluate_ood([write(tmp_path / "a.parquet", 30, 4.0)], [write(tmp_path / "b.parquet", 24, 0.0)])
    assert "--ood-fit VAL.parquet" in both[1][0]
    with pytest.raises(DataError, match="has no features of labelled rows"):
        evaluate_ood([tmp_path / "a.parquet"], [tmp_path / "b.parquet"], reference=known)


def test_a_calibrated_model_is_judged_by_its_probabilities(tmp_path: Path) -> None:
    known, foreign = write(tmp_path / "test.parquet", 300, 4.0), write(tmp_path / "far.parquet", 240, 0.0)
    data = np.random.default_rng(1).normal(size=(90, 3))
    fit("temperature", data, np.arange(90) % 3).save(tmp_path / "cal.json")
    rows, _ = evaluate_ood([known], [foreign], [tmp_path / "cal.json"])
    assert [(r.model, r.score) for r in rows][-1] == ("test, cal", "MSP")


def test_files_of_different_models_are_not_compared(tmp_path: Path) -> None:
    known = write(tmp_path / "test.parquet", 30, 4.0)
    with pytest.raises(DataError, match="of other classes"):
        evaluate_ood([known], [write(tmp_path / "other.parquet", 30, 4.0, names=("x", "y", "z"))])


def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    known, foreign = write(tmp_path / "test.parquet", 300, 4.0), write(tmp_path / "insects.parquet", 240, 0.0)
    done = CliRunner().invoke(evaluate, [str(known), "--ood", str(foreign)], catch_exceptions=False)
    assert "FPR at 95 %" in done.stdout
    assert "insects (240)" in done.stdout
    with pytest.raises(ConfigError, match="goes with --ood"):
        CliRunner().invoke(evaluate, [str(known), "--ood-fit", str(known)], catch_exceptions=False)
