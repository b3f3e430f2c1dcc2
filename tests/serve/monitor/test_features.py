"""The features of served rows: where they come from, what is kept of them, and what is said where there are none."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.monitoring.feature_scores import Directions
from calibrant.errors import DataError
from calibrant.serve.http.exposition import monitored
from calibrant.serve.http.prometheus import Exposition
from calibrant.serve.monitor import features as features_module
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.features import ServedFeatures
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.processes.background import running
from calibrant.serve.protocol.tensors import TensorSpec

WIDTH, SHA = 20, "ab" * 32


def _session(*shape: int, kind: str = "FP32") -> Any:
    return SimpleNamespace(outputs={"features": TensorSpec("features", kind, shape)} if shape else {})


def _rows(path: Path, features: np.ndarray | None, tiny: ModuleType, made_by: str = "") -> Path:
    n = 5 if features is None else len(features)
    ids, labels = tuple(map(str, range(n))), np.zeros(n, np.int64)
    source = Source(tiny.CLASSES, model={"onnx_sha256": made_by} if made_by else {})
    Predictions(ids, labels, np.zeros((n, 4), np.float32), source, features).write(path)
    return path


@pytest.mark.parametrize(
    ("session", "says"),
    [
        (_session(), "the file has no output `features`"),
        (_session(-1, 7, 7), r"not a row of numbers"),
        (_session(-1, -1), r"not a row of numbers"),
        (_session(-1, 5, kind="INT64"), r"INT64"),
    ],
)
def test_a_file_without_features_is_said_to_have_none(session: Any, says: str, tiny: ModuleType) -> None:
    found = ServedFeatures.of(session, SHA, None)
    assert (found.watched, found.watch) == (False, None)
    assert says in found.said
    monitor = Monitor(
        feedback.Model("birds", "1", SHA, tiny.CLASSES), tiny.card(), MonitorConfig(), None, features=found
    )
    monitor.record("r", np.zeros((2, 4), np.float32), 0.1, np.zeros((2, 7), np.float32))
    body = monitor.report()
    assert body["features"] == {"watched": False, "said": found.said, "rows_without": 0}
    assert "features" not in body["alarms"]


@pytest.mark.parametrize(
    ("rows", "says", "known"),
    [(None, "the baseline has no rows with features", False), (1999, "1,999 rows", False), (2000, "2,000 rows", True)],
)
def test_what_is_normal_comes_from_enough_rows_of_the_baseline(
    rows: int | None, says: str, known: bool, tiny: ModuleType, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    x = None if rows is None else rng.normal(size=(rows, WIDTH)).astype(np.float32)
    found = ServedFeatures.of(_session(-1, WIDTH), SHA, _rows(tmp_path / "p.parquet", x, tiny))
    assert found.watch is not None
    assert (found.watch.normal is not None) == known
    assert says in found.said
    assert ("first served rows" in found.said) == (not known)


def test_a_baseline_of_another_width_is_refused(tiny: ModuleType, tmp_path: Path) -> None:
    path = _rows(tmp_path / "p.parquet", np.zeros((3, 7), np.float32), tiny)
    with pytest.raises(DataError, match=r"7 features a row, and the model puts out 20"):
        ServedFeatures.of(_session(-1, WIDTH), SHA, path)


@pytest.mark.parametrize("made_by", [SHA, "cd" * 32, ""])
def test_features_of_another_file_are_no_baseline(
    made_by: str, tiny: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _rows(tmp_path / "p.parquet", np.random.default_rng(0).normal(size=(2000, WIDTH)), tiny, made_by)
    if made_by == "cd" * 32:
        with pytest.raises(DataError, match=r"are of another file \(cdcdcdcdcdcd\.\.\.\) than the served one \(abab"):
            ServedFeatures.of(_session(-1, WIDTH), SHA, path)
        return
    assert "2,000 rows of the baseline" in ServedFeatures.of(_session(-1, WIDTH), SHA, path).said
    assert ("does not say which file its features are of" in caplog.text) == (made_by == "")


def test_the_log_keeps_a_few_numbers_of_the_features_and_not_the_features(tiny: ModuleType, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    found, writer = ServedFeatures.of(_session(-1, 500), SHA, None), FeedbackWriter(tmp_path)
    model = feedback.Model("birds", "1", SHA, tiny.CLASSES)
    monitor = Monitor(model, tiny.card(), MonitorConfig(), writer, features=found)
    x = rng.normal(size=(6, 500)).astype(np.float32)
    monitor.record("a", np.zeros((2, 4), np.float32), None, x[:2])
    monitor.record("b", np.zeros((1, 4), np.float32))
    monitor.record("c", np.full((1, 4), np.nan, np.float32), None, x[3:4])  # no distribution: in no figure
    monitor.record("d", np.zeros((2, 4), np.float32), None, x[4:])
    monitor.flush()
    writer.close()
    (served,) = feedback.read_feedback(tmp_path).served
    assert served.ids == ("a/0", "a/1", "b", "d/0", "d/1")
    wanted = Directions.at_random(500, int(SHA[:12], 16)).scores(x)
    np.testing.assert_allclose(served.scores[[0, 1, 3, 4]], wanted[[0, 1, 4, 5]], rtol=1e-4, atol=1e-4)
    assert np.isnan(served.scores[2]).all()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 4 * x.size


def test_features_that_find_no_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_module, "MOST_BYTES", 4 * WIDTH * 3)
    found = ServedFeatures.of(_session(-1, WIDTH), SHA, None)
    row = np.ones((1, WIDTH), np.float32)
    assert found.taken(row, 1, pending=2) is not None
    assert found.taken(row, 1, pending=3) is None
    assert found.to_dict()["rows_without"] == 1


def test_drift_of_features_alone_is_an_alarm_a_line_and_a_metric(tiny: ModuleType) -> None:
    rng, said = np.random.default_rng(2), list[str]()
    found = ServedFeatures.of(_session(-1, WIDTH), SHA, None)
    model = feedback.Model("birds", "1", SHA, tiny.CLASSES)
    monitor = Monitor(model, tiny.card(), MonitorConfig(), None, alarm=said.append, features=found)
    for n in range(80):
        x = rng.normal(size=(50, WIDTH)).astype(np.float32)
        x[:25] += 2.0 * (n >= 50)
        monitor.record(f"r{n}", rng.normal(size=(50, 4)).astype(np.float32), None, x)
    body, out = monitor.report(), Exposition()
    assert body["alarms"]["features"]["on"]
    assert body["alarms"]["features"]["raised_at"] > 2500
    assert not body["alarms"]["confidence"]["on"]
    assert len([line for line in said if "the features have drifted" in line]) == 1
    assert "The features are not those" in json.dumps(body["verdict"])
    monitored(out, body, {"model": "birds"})
    assert 'calibrant_monitor_alarm{model="birds",kind="features"} 1' in out.text()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_watches_what_its_graph_puts_out(workers: int, tiny: ModuleType, tmp_path: Path) -> None:
    """Callers get what they asked for, no more; rows of all workers are counted."""
    path, log = tiny.write(tmp_path / "birds.onnx", features=True), tmp_path / "log"
    pixels = tiny.pictures(100)
    arguments = ["--feedback-log", str(log), "--feature-drift", "--workers", str(workers), "--threads", "1"]
    with running(path, arguments=arguments) as server:
        for n, picture in enumerate(pixels):
            tensor = {"name": "images", "shape": [1, 16, 16, 3], "datatype": "UINT8", "data": picture.ravel().tolist()}
            asked = {"id": f"r{n}", "inputs": [tensor], "outputs": [{"name": "probabilities"}]}
            request = urllib.request.Request(f"{server.url}/v2/models/birds/infer", json.dumps(asked).encode())
            answer = json.loads(urllib.request.urlopen(request).read())
            assert [o["name"] for o in answer["outputs"]] == ["probabilities"]
        body = json.loads(urllib.request.urlopen(f"{server.url}/v2/models/birds/monitor").read())
    assert body["features"]["watched"]
    assert "first served rows" in body["features"]["said"]
    assert (body["rows"], body["alarms"]["features"]["rows"]) == (100, 100)
    (served,) = feedback.read_feedback(log).served
    x = (pixels / 255.0 - np.array(tiny.PREPROCESSING.mean)) / np.array(tiny.PREPROCESSING.std)
    directions = Directions.at_random(3, int(served.model.sha256[:12], 16))
    wanted = directions.scores(x.mean(axis=(1, 2)).astype(np.float32))
    order = [int(i[1:]) for i in served.ids]
    np.testing.assert_allclose(served.scores, wanted[order], rtol=1e-3, atol=1e-3)
