"""Estimates from predictions files, and their way into a deployed file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import Predictions, PredictionsFile, Source
from calibrant.calibration.fitting import fit_file
from calibrant.calibration.formula import Formula
from calibrant.calibration.label_shift.files import estimate_of_file, served_file
from calibrant.commands.root import cli
from calibrant.errors import ConfigError, DataError

NAMES = ("crane", "gull", "tern")


def write(
    path: Path,
    prior: list[float],
    rows: int,
    *,
    labelled: bool,
    names: tuple[str, ...] = NAMES,
    train_prior: tuple[float, ...] | None = None,
) -> Path:
    rng = np.random.default_rng(rows)
    labels = rng.choice(3, rows, p=prior)
    logits = rng.normal(size=(rows, 3)).astype(np.float32)
    logits[np.arange(rows), labels] += 2.5
    source = Source(class_names=names, train_prior=train_prior, model={"sha256": "0" * 64})
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


def test_calibrating_for_served_rows_corrects_after_the_map(tmp_path: Path) -> None:
    """The labelled rows are of training, so the temperature is theirs and the correction leads to the served prior."""
    known = write(tmp_path / "val.parquet", [1 / 3] * 3, 600, labelled=True, train_prior=(1 / 3, 1 / 3, 1 / 3))
    served = write(tmp_path / "june.parquet", [0.7, 0.2, 0.1], 900, labelled=False)
    plain = fit_file(known)
    found = fit_file(known, adjust=1.0, target_prior=f"estimate:{served}")
    assert found.parameters == plain.parameters
    formula = Formula.of(found, PredictionsFile.open(known).source)
    assert formula.prior.target == pytest.approx([0.7, 0.2, 0.1], abs=0.05)
    assert found.fitted_on["target_prior"] == "june.parquet"


def test_evaluate_weights_to_the_served_prior(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = write(tmp_path / "val.parquet", [1 / 3] * 3, 600, labelled=True)
    served = write(tmp_path / "june.parquet", [0.7, 0.2, 0.1], 900, labelled=False)
    arguments = ["evaluate", str(known), "--json", "--target-prior"]
    by_estimate = CliRunner().invoke(cli, [*arguments, f"estimate:{served}"])
    shares = estimate_of_file(served, known).target.tolist()
    by_hand = CliRunner().invoke(cli, [*arguments, ",".join(map(str, shares))])
    assert "the class shares have changed: crane from" in caplog.text
    assert json.loads(by_estimate.stdout)["models"] == json.loads(by_hand.stdout)["models"]
    two = CliRunner().invoke(cli, ["evaluate", str(known), str(known), "--target-prior", f"estimate:{served}"])
    assert isinstance(two.exception, ConfigError)


def test_only_the_prefix_makes_an_estimate() -> None:
    assert served_file("estimate:june.parquet") == Path("june.parquet")
    assert served_file("june.parquet") is None
    assert served_file(None) is None
