"""Estimates from predictions files, and their way into a deployed file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.label_shift.files import estimate_of_file, served_file
from calibrant.errors import DataError

NAMES = ("crane", "gull", "tern")


def write(path: Path, prior: list[float], rows: int, *, labelled: bool, names: tuple[str, ...] = NAMES) -> Path:
    rng = np.random.default_rng(rows)
    labels = rng.choice(3, rows, p=prior)
    logits = rng.normal(size=(rows, 3)).astype(np.float32)
    logits[np.arange(rows), labels] += 2.5
    source = Source(class_names=names, model={"sha256": "0" * 64})
    ids = tuple(f"{path.stem}-{i}" for i in range(rows))
    Predictions(ids, labels if labelled else np.full(rows, -1), 2.5 * logits, source).write(path)
    return path


def test_the_prior_of_unlabelled_rows_comes_from_two_files(tmp_path: Path) -> None:
    known = write(tmp_path / "val.parquet", [1 / 3] * 3, 600, labelled=True)
    served = write(tmp_path / "june.parquet", [0.7, 0.2, 0.1], 900, labelled=False)
    found = estimate_of_file(served, known)
    assert found.shifted
    assert found.target == pytest.approx([0.7, 0.2, 0.1], abs=0.05)


def test_what_does_not_fit_together_is_refused_with_the_file_named(tmp_path: Path) -> None:
    known = write(tmp_path / "val.parquet", [1 / 3] * 3, 600, labelled=True)
    other = write(tmp_path / "other.parquet", [1 / 3] * 3, 100, labelled=False, names=("crane", "gull", "rook"))
    few = write(tmp_path / "few.parquet", [1 / 3] * 3, 20, labelled=False)
    with pytest.raises(DataError, match="other.parquet: has other classes than val.parquet"):
        estimate_of_file(other, known)
    with pytest.raises(DataError, match="few.parquet: 20 rows are too few"):
        estimate_of_file(few, known)
    with pytest.raises(DataError, match="other.parquet: no row has a label"):
        estimate_of_file(other, other)


def test_only_the_prefix_makes_an_estimate() -> None:
    assert served_file("estimate:june.parquet") == Path("june.parquet")
    assert served_file("june.parquet") is None
    assert served_file(None) is None
