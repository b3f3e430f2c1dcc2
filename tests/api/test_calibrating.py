"""From a notebook the numbers are those of the commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.calibration.metrics import ece
from calibrant.calibration.softmax import softmax
from calibrant.errors import DataError

CLASSES = 4


def rows(n: int = 600, *, seed: int = 0, sharp: float = 2.5) -> tuple[np.ndarray, np.ndarray]:
    """Logits that claim more than is true: those of a calibrated model, times `sharp`."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, CLASSES)) * 1.5
    p = softmax(z)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return (sharp * z).astype(np.float32), y


def test_scores_a_file_and_a_table_give_one_report(tmp_path: Path) -> None:
    z, y = rows()
    predictions = calibrant.load_predictions(z, y)
    predictions.write(tmp_path / "p.parquet")
    table = {**{f"logit_{k}": z[:, k] for k in range(CLASSES)}, "label": y}
    found = [calibrant.evaluate(source) for source in (predictions, tmp_path / "p.parquet", table)]
    found.append(calibrant.evaluate(z, y))
    assert found[0].ece.value == pytest.approx(ece(softmax(z), y), abs=1e-12)
    for other in found[1:]:
        assert other.metrics["ece"] == found[0].ece
        assert other.metrics["nll"] == found[0].nll


def test_the_fitted_temperature_is_the_one_that_made_the_rows() -> None:
    z, y = rows(4000)
    calibrator = calibrant.fit(z, y)
    assert calibrator.parameters["temperature"] == pytest.approx(2.5, rel=0.08)
    expected = softmax(z.astype(np.float64) / calibrator.parameters["temperature"])
    np.testing.assert_allclose(calibrator.probabilities(z), expected, atol=1e-6)


def test_a_report_says_the_verdict_and_its_metrics_by_name() -> None:
    z, y = rows(2000)
    report = calibrant.evaluate(z, y, name="mine")
    assert repr(report).startswith("<Report of mine: 2,000 rows, accuracy ")
    assert report.verdict is not None
    assert report.verdict.level == "not-trusted"
    assert all(remedy.command is None for remedy in report.verdict.remedies)  # what lies in memory has no path
    assert report.verdict.sentence.split("'")[0] in report._repr_html_()
    assert "ece" in dir(report)
    assert report.to_dict()["metrics"]["ece"]["value"] == report.ece.value
    with pytest.raises(AttributeError):
        _ = report.no_such_metric


def test_a_calibrator_is_compared_with_nothing_on_the_same_rows(tmp_path: Path) -> None:
    z, y = rows(1500)
    held_z, held_y = rows(1500, seed=1)
    calibrator = calibrant.fit(held_z, held_y)
    calibrator.save(tmp_path / "c.json")
    before, after = calibrant.evaluate(z, y), calibrant.evaluate(z, y, calibrator=tmp_path / "c.json")
    found = calibrant.compare(calibrant.load_predictions(z, y), calibrator)
    assert found["ece"].difference == pytest.approx(after.ece.value - before.ece.value, abs=1e-9)
    assert found["nll"].clear
    assert "NLL" in repr(found)
    assert "beyond noise" in found._repr_html_()


def test_two_models_are_matched_by_their_ids() -> None:
    z, y = rows(300)
    ids = [f"i{n}" for n in range(300)]
    first = calibrant.load_predictions({"id": ids, "logits": z, "label": y})
    turned = calibrant.load_predictions({"id": ids[::-1], "logits": z[::-1] / 2.5, "label": y[::-1]})
    assert calibrant.compare(first, turned)["accuracy"].difference == 0
    assert calibrant.compare(first, turned)["nll"].difference < 0
    with pytest.raises(DataError, match="the second: does not hold the same labelled ids"):
        calibrant.compare(first, calibrant.load_predictions(z, y))


def test_what_has_no_labels_is_told(tmp_path: Path) -> None:
    z, _ = rows(60)
    with pytest.raises(DataError, match="no row has a label"):
        calibrant.fit(z)
    with pytest.raises(DataError, match="no row has a label"):
        calibrant.compare(z, z)
