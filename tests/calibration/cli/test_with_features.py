"""The commands on predictions that hold features: fitting, judging and comparing a map that reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrant.api import calibrating
from calibrant.artifacts.predictions import Predictions, Source, read_predictions
from calibrant.calibration import Calibrator, metrics
from calibrant.calibration.cli.calibrate import calibrate
from calibrant.calibration.cli.evaluate import evaluate
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.softmax import softmax
from calibrant.calibration.verdict.claims_of_file import claims_of_file
from calibrant.errors import DataError

Run = Callable[..., str]


def written(path: Path, rows: int, seed: int, *, features: bool = True) -> Path:
    """Rows far out are three times as over-confident."""
    rng = np.random.default_rng(seed)
    near = rng.random(rows) < 0.6
    x = np.where(near[:, None], 2.0 + 0.3 * rng.normal(size=(rows, 8)), 2.0 * rng.normal(size=(rows, 8)))
    z = 3.0 * x @ np.random.default_rng(0).normal(size=(8, 4))
    y = (softmax(z / np.where(near, 2.0, 8.0)[:, None]).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    source = Source(("a", "b", "c", "d"), train_prior=(0.4, 0.3, 0.2, 0.1))
    ids, groups = tuple(map(str, range(rows))), {"site": tuple("xy"[i % 2] for i in range(rows))}
    found = Predictions(ids, y, z.astype(np.float32), source, x.astype(np.float32), groups=groups)
    (found if features else replace(found, features=None)).write(path)
    return path


@pytest.fixture
def fitted(tmp_path: Path, run: Run) -> tuple[Path, Path, Path]:
    val, test = written(tmp_path / "val.parquet", 500, 1), written(tmp_path / "test.parquet", 2000, 2)
    run(calibrate, val, "--method", "density-aware", "--conformal", "0.1", "--out", tmp_path / "c.json")
    return val, test, tmp_path / "c.json"


def test_it_is_fitted_from_a_file_and_judged_on_another(fitted: tuple[Path, Path, Path], run: Run) -> None:
    _, test, file = fitted
    found, rows = Calibrator.load(file), read_predictions(test, features=True)
    assert found.method == "density-aware"
    assert found.metrics["after"]["nll"]["value"] < found.metrics["before"]["nll"]["value"]
    told = json.loads(run(evaluate, test, "--calibrator", file, "--json"))
    q = found.probabilities(rows.logits, rows.features)
    by_hand = metrics.nll(q, rows.labels)
    assert by_hand < metrics.nll(softmax(rows.logits), rows.labels) - 0.1
    judged = next(m for m in told["models"] if "c" in m["name"].split())
    assert judged["metrics"]["nll"]["value"] == pytest.approx(by_hand, rel=1e-5)
    sites = next(m for m in evaluate_files([test], [file]) if not m.reference).evaluation.row_groups
    x = np.arange(2000) % 2 == 0
    (of_x,) = [g for g in sites if g.value == "x"]
    assert of_x.metrics["accuracy"].value == pytest.approx(float((q.argmax(1) == rows.labels)[x].mean()), abs=1e-6)


def test_own_rows_are_cross_fitted_compared_and_claimed(fitted: tuple[Path, Path, Path], run: Run) -> None:
    val, test, file = fitted
    text = run(evaluate, val, "--calibrator", file, "--cross-fit", "5")
    assert "cross-fitted" in text
    assert "judged on the very rows" not in text
    compared = run(evaluate, test, "--calibrator", file, "--compare")
    assert "NLL" in compared
    found = Calibrator.load(file)
    in_python = calibrating.compare(read_predictions(test, features=True), found)
    assert in_python["nll"].difference < 0
    rows = read_predictions(test, features=True)
    claims = claims_of_file(test, file).claims
    assert claims.share @ claims.confidence == pytest.approx(
        float(found.probabilities(rows.logits, rows.features).max(axis=1).mean()), abs=1e-6
    )


def test_files_without_features_are_refused_with_what_makes_them(
    fitted: tuple[Path, Path, Path], run: Run, tmp_path: Path
) -> None:
    plain = written(tmp_path / "plain.parquet", 500, 3, features=False)
    with pytest.raises(DataError, match="reads the network's features, and these rows hold none") as refused:
        run(calibrate, plain, "--method", "density-aware", "--out", tmp_path / "d.json")
    assert "calibrant predict --features" in str(refused.value)
    with pytest.raises(DataError, match="these rows hold none"):
        run(evaluate, plain, "--calibrator", fitted[2])
    assert not (tmp_path / "d.json").exists()
