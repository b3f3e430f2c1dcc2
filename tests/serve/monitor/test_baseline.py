from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.monitoring.baseline import Baseline
from calibrant.errors import DataError
from calibrant.serve.monitor.baseline import read_baseline
from calibrant.serve.processes.background import running


def _rows(tiny: ModuleType, n: int, *, flatter: float = 1.0, as_trained: bool = False, **source: Any) -> Predictions:
    """Logits of the network, and labels from a distribution that is `flatter` than what the deployed file claims.

    `as_trained`: spread as in training, so that softmax(z / T) is right and the file's corrected answers are not.
    """
    rng = np.random.default_rng(3)
    z = rng.normal(0, 4, (n, 4)).astype(np.float32)
    if as_trained:
        z += (tiny.TEMPERATURE * np.log(np.array(tiny.TRAIN) * 4)).astype(np.float32)
    term = 0 if as_trained else np.log(np.array(tiny.TRAIN) * 4)
    p = np.exp((z / tiny.TEMPERATURE - term) / flatter)
    p /= p.sum(axis=1, keepdims=True)
    labels = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    ids = tuple(f"r{k}" for k in range(n))
    return Predictions(ids, labels, z, Source(**{"class_names": tiny.CLASSES, **source}))


def test_it_is_fitted_on_the_probabilities_that_the_file_would_answer(tiny: ModuleType, tmp_path: Path) -> None:
    _rows(tiny, 6000, flatter=1.25).write(tmp_path / "p.parquet")
    found = Baseline.fit([read_baseline(tmp_path / "p.parquet", tiny.card())])
    assert found.rows == 6000
    assert found.sharpness == pytest.approx(1 / 1.25, abs=0.03)


def test_rows_spread_as_in_training_are_no_misfit_of_a_corrected_file(tiny: ModuleType, tmp_path: Path) -> None:
    """Fitted on the corrected answers to these rows, the bias would be log(train / uniform)."""
    _rows(tiny, 20_000, as_trained=True).write(tmp_path / "p.parquet")
    found = Baseline.fit([read_baseline(tmp_path / "p.parquet", tiny.card())])
    assert found.sharpness == pytest.approx(1.0, abs=0.05)
    assert np.ptp(found.bias) < 0.2  # log(0.4 / 0.1) = 1.4 if it were mistaken


def test_rows_that_the_deployed_file_wrote_are_calibrated_already(tiny: ModuleType, tmp_path: Path) -> None:
    """An isotonic calibrator: its outcome is in the rows, and only the prior is taken off."""
    card = tiny.card(calibrator={"method": "isotonic", "parameters": {}})
    rows = _rows(tiny, 4000)
    rows.write(tmp_path / "own.parquet")
    with pytest.raises(DataError, match="isotonic.* is not applied here; write them with the deployed file"):
        read_baseline(tmp_path / "own.parquet", card)
    calibrated = Predictions(rows.ids, rows.labels, rows.logits / 2, Source(tiny.CLASSES, model={"applied": {"x": 1}}))
    calibrated.write(tmp_path / "served.parquet")
    found = Baseline.fit([read_baseline(tmp_path / "served.parquet", card)])
    assert found.sharpness == pytest.approx(1.0, abs=0.05)


def test_a_feedback_log_holds_corrected_answers_which_are_not_corrected_again(tiny: ModuleType, tmp_path: Path) -> None:
    card, rows = tiny.card(), _rows(tiny, 4000)
    answers = rows.logits / tiny.TEMPERATURE - np.log(np.array(tiny.TRAIN) * 4)
    writer, model = FeedbackWriter(tmp_path / "log"), feedback.Model("birds", "1", "sha", tiny.CLASSES)
    writer.predictions(model, rows.ids, [1.0] * len(rows), answers.astype(np.float32))
    writer.labels(model.name, rows.ids, rows.labels.tolist())
    writer.close()
    rows.write(tmp_path / "p.parquet")
    known = [read_baseline(path, card) for path in (tmp_path / "log", tmp_path / "p.parquet")]
    np.testing.assert_allclose(known[0].log_p, known[1].log_p, atol=1e-4)
    assert known[0].labels.tolist() == known[1].labels.tolist()


@pytest.mark.parametrize(
    ("rows", "source", "says"),
    [
        (300, {"class_names": ("a", "b", "c", "d")}, "other classes than the model"),
        (300, {"model": {"sha256": "another"}}, "predictions of another network"),
        (0, {}, "has no row with a label"),
    ],
)
def test_what_is_no_baseline_is_refused(
    tiny: ModuleType, tmp_path: Path, rows: int, source: dict[str, Any], says: str
) -> None:
    _rows(tiny, rows, **source).write(tmp_path / "p.parquet")
    with pytest.raises(DataError, match=says):
        read_baseline(tmp_path / "p.parquet", tiny.card(source={"checkpoint_sha256": "this"}))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (499, "499 labelled rows are no baseline for 4 classes, which takes 500; they are the beginning"),
        (999, "with 999 labelled rows the calibration alarm is slower than with 1,000 for 4 classes"),
        (1000, None),
    ],
)
def test_how_much_a_baseline_is_worth_is_said(
    tiny: ModuleType, tmp_path: Path, rows: int, says: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    _rows(tiny, rows).write(tmp_path / "p.parquet")
    read_baseline(tmp_path / "p.parquet", tiny.card())
    assert [r.message for r in caplog.records] == [] if says is None else says in caplog.text


def test_a_server_with_a_baseline_is_on_guard_from_the_first_label(
    tiny: ModuleType, model_file: Path, tmp_path: Path
) -> None:
    _rows(tiny, 2000).write(tmp_path / "p.parquet")
    arguments = ["--threads", "1", "--monitor", "--baseline", str(tmp_path / "p.parquet")]
    with running(model_file, arguments=arguments) as server:
        report = httpx.get(server.url + "/v2/models/birds/monitor", timeout=60).json()
    assert report["alarms"]["calibration"]["baseline_rows"] == 2000
    assert report["class_shares"]["shares"] is None
    assert "0 rows are too few" in report["class_shares"]["said"][0]
