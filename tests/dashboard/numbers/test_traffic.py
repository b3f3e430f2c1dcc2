"""Served traffic: what the log says, and the new file that its labels make."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import deployed, recalibration, traffic
from calibrant.dashboard.views.production.page import volume
from calibrant.errors import CalibrantError, DataError, FormatError, ModelError
from calibrant.serve import load

from ..conftest import export_small_network, logits_and_labels, write_feedback, write_model


def card_of(path: Path) -> ModelCard:
    return OnnxFile.open(path).card()


def test_deployed_confidence_is_the_one_formula_by_hand(tmp_path: Path) -> None:
    card = card_of(write_model(tmp_path / "m.onnx"))
    z = np.array([[3.0, 1.0, *[0.0] * 8], [0.0] * 9 + [2.0]], np.float32)
    pi = np.asarray(card.prior.train)
    scores = np.exp(z / 2.0) / pi  # T = 2, full adjustment from pi to uniform
    expected = (scores / scores.sum(axis=1, keepdims=True)).max(axis=1)
    assert deployed.confidence(card, z) == pytest.approx(expected, rel=1e-6)


def test_the_summary_counts_rows_labels_and_accuracy(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    labels = write_feedback(tmp_path / "log", model, rows=1000, every=4)
    (served,) = read_feedback(tmp_path / "log").served
    found = traffic.summarise(served, card_of(model))
    assert (found.rows, found.labelled.rows) == (1000, 250)  # type: ignore[union-attr]
    known = served.labels >= 0
    right = (served.logits[known].argmax(axis=1) == labels[::4]).mean()
    assert found.labelled.evaluation.metrics["accuracy"].value == pytest.approx(right)  # type: ignore[union-attr]
    e = np.exp(served.logits.astype(np.float64))
    assert found.recent.expected.value == pytest.approx((e.max(axis=1) / e.sum(axis=1)).mean(), rel=1e-9)
    assert [w.first for w in found.windows][:3] == [1, 51, 101]
    assert found.windows[-1].last == 1000
    assert sum(w.labelled for w in found.windows) == 250


def test_without_labels_there_is_an_expectation_and_no_realised_accuracy(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=120, every=None)
    (served,) = read_feedback(tmp_path / "log").served
    found = traffic.summarise(served, None)
    assert found.labelled is None
    assert all(w.realised is None for w in found.windows)
    assert found.recent.expected.low < found.recent.expected.value < found.recent.expected.high


def test_latency_is_the_share_of_answers_that_took_at_most_so_long(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=1000, every=None)
    (served,) = read_feedback(tmp_path / "log").served
    found = traffic.summarise(served, None)
    assert found.latency is not None
    took = np.sort(served.latency_ms.astype(np.float64))
    assert (took <= found.latency.half).mean() == pytest.approx(0.5, abs=0.002)
    assert (took <= found.latency.p95).mean() == pytest.approx(0.95, abs=0.002)
    assert (took <= found.latency.p99).mean() == pytest.approx(0.99, abs=0.002)
    assert found.latency.p99 > 30 > found.latency.p95  # every fortieth row took 30 ms more
    halves = [w.latency.half for w in found.windows if w.latency is not None]
    assert len(halves) == len(found.windows)
    assert halves == sorted(halves)  # it grows with each row


def test_rows_without_a_latency_are_left_out_and_a_log_without_any_says_nothing(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=100, every=None, latency=False)
    (served,) = read_feedback(tmp_path / "log").served
    found = traffic.summarise(served, None)
    assert found.latency is None
    assert all(w.latency is None for w in found.windows)
    assert traffic.latency_of(np.array([np.nan, 7.0], np.float32)) == traffic.Latency(7.0, 7.0, 7.0)


def test_the_expected_accuracy_is_corrected_by_what_the_file_knows_from_held_out_rows(tmp_path: Path) -> None:
    measured = {"accuracy": {"value": 0.8}, "under_ece": {"value": 0.01}, "over_ece": {"value": 0.06}}
    calibrator = {"method": "temperature", "parameters": {"temperature": 2.0}, "fitted_on": {"rows": 400}}
    model = write_model(tmp_path / "m.onnx", metrics={"after": measured}, calibrator=calibrator)
    write_feedback(tmp_path / "log", model, rows=500, every=None)
    (served,) = read_feedback(tmp_path / "log").served
    bare, corrected = (
        traffic.summarise(served, None).recent.expected,
        traffic.summarise(served, card_of(model)).recent.expected,
    )
    assert corrected.value == pytest.approx(bare.value - 0.05, abs=1e-12)
    assert corrected.high - corrected.low > bare.high - bare.low


def test_an_alarm_that_has_fired_is_shown_and_quiet_traffic_is_not(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "quiet", model, rows=3000, every=1, sharpness=2.0)
    write_feedback(tmp_path / "loud", model, rows=3000, every=1, sharpness=4.0)
    states = {}
    for name in ("quiet", "loud"):
        (served,) = read_feedback(tmp_path / name).served
        states[name] = traffic.summarise(served, card_of(model)).alarms["calibration"]
    assert not states["quiet"].on
    assert states["loud"].fired_at is not None
    assert states["loud"].fired_at <= 1000


def test_a_foreign_log_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.feedback.jsonl").write_text('{"record": "predictions", "sha256": 3}\n{"record": "model"}\n')
    with pytest.raises(FormatError):
        traffic.read(tmp_path, traffic.log_stamps(tmp_path))


def test_a_log_is_found_and_read_while_it_is_written(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=40, every=None)
    (log,) = scan(tmp_path).feedback
    assert log.name == "log"
    segment = next((tmp_path / "log").iterdir())
    with open(segment, "ab") as stream:
        stream.write(b'{"record": "labels", "model": "birds", "ti')
    found = traffic.read(log.path, traffic.log_stamps(log.path))
    assert len(found.served[0].ids) == 40
    with open(segment, "ab") as stream:
        stream.write(b'me": 1, "ids": ["r0"], "labels": [2]}\n')
    again = traffic.read(log.path, traffic.log_stamps(log.path))
    assert again.served[0].labels[0] == 2


def test_volume_has_steps_of_a_round_length_and_loses_no_row() -> None:
    times = np.array([0.0, 59.9, 60.0, 119.0, 3600.0])
    table = volume(times)
    assert table["rows"].sum() == 5
    assert len(table) <= 41
    assert (table["to"] - table["from"]).dt.total_seconds().unique().tolist() == [300.0]
    assert table["rows"].tolist()[0] == 4


# ---- recalibration ----


def test_recalibration_finds_the_temperature_inside_the_prior_term(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=4000, every=1, sharpness=3.0)
    (served,) = read_feedback(tmp_path / "log").served
    folder_index = scan(tmp_path)
    trial = recalibration.try_out(folder_index.models[0], served)
    # Logits were made 3 times too sharp and the labels drawn from the prior-adjusted model: T = 3, not 2.
    assert trial.calibrator.parameters["temperature"] == pytest.approx(3.0, rel=0.06)
    assert trial.old_temperature == 2.0
    assert trial.after.metrics["nll"].value < trial.before.metrics["nll"].value
    assert (trial.fitted_rows, trial.judged_rows) == (2000, 2000)


@pytest.mark.slow
def test_writing_makes_two_new_files_and_leaves_the_old_one(tmp_path: Path) -> None:
    model = export_small_network(tmp_path / "m.onnx")
    before = model.read_bytes()
    write_feedback(tmp_path / "log", model, rows=1000, every=1, sharpness=3.0)
    (served,) = read_feedback(tmp_path / "log").served
    deployed = scan(tmp_path).models[0]
    trial = recalibration.try_out(deployed, served)
    written = recalibration.write(deployed, trial)
    assert model.read_bytes() == before
    assert sorted(p.name for p in tmp_path.glob("m-*")) == sorted([written.calibrator.name, written.model.name])
    card = card_of(written.model)
    new = trial.calibrator.parameters["temperature"]
    assert card.calibrator["parameters"]["temperature"] == new  # type: ignore[index]
    assert card.prior == deployed.card.prior
    # The new file answers as the old one's logits, brought from T = 2 to the new T inside the prior term.
    picture = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype(np.uint8)
    old, now = (load(p).predict(picture).logits.astype(np.float64) for p in (model, written.model))
    shift = deployed.card.prior.shift()
    assert now == pytest.approx((old + shift) * 2 / new - shift, abs=1e-4)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")  # names no head, so that it cannot be edited
    write_feedback(tmp_path / "log", model, rows=200, every=1)
    (served,) = read_feedback(tmp_path / "log").served
    deployed = scan(tmp_path).models[0]
    with pytest.raises(CalibrantError, match="names no head"):
        recalibration.write(deployed, recalibration.try_out(deployed, served))
    assert list(tmp_path.glob("m-*")) == []


def test_too_few_labels_are_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=60, every=2)
    (served,) = read_feedback(tmp_path / "log").served
    with pytest.raises(DataError, match="30 labels are too few"):
        recalibration.try_out(scan(tmp_path).models[0], served)


def test_a_calibrator_that_cannot_be_undone_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx", calibrator={"method": "isotonic", "parameters": {}})
    write_feedback(tmp_path / "log", model, rows=100, every=1)
    (served,) = read_feedback(tmp_path / "log").served
    with pytest.raises(ModelError, match="cannot be undone"):
        recalibration.try_out(scan(tmp_path).models[0], served)


def test_the_file_of_a_log_is_found_by_its_hash(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    other = write_model(tmp_path / "other.onnx", description="another")
    assert other.read_bytes() != model.read_bytes()
    write_feedback(tmp_path / "log", model, rows=20, every=None)
    (served,) = read_feedback(tmp_path / "log").served
    found = traffic.matching(scan(tmp_path).models, served)
    assert found is not None
    assert found.name == "m.onnx"
    model.unlink()
    assert traffic.matching(scan(tmp_path).models, served) is None


def test_a_file_whose_threshold_was_set_since_is_still_the_file_of_its_log(tmp_path: Path) -> None:
    from calibrant.export.edit import noted, restamp, set_threshold

    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=20, every=None)
    (served,) = read_feedback(tmp_path / "log").served

    def found() -> bool:
        return traffic.matching(scan(tmp_path).models, served) is not None

    set_threshold(model, 0.6)
    set_threshold(model, 0.7)
    assert found()
    restamp(model, noted(OnnxFile.open(model).card(), "recalibrated: temperature"))  # what writes another formula notes
    assert not found()  # it answers otherwise now
    set_threshold(model, 0.8)
    assert not found()


def test_the_log_fixture_is_what_the_formula_says(tmp_path: Path) -> None:
    """Otherwise the tests above would agree with a wrong log."""
    model = write_model(tmp_path / "m.onnx")
    write_feedback(tmp_path / "log", model, rows=10, every=None, seed=5, sharpness=2.5)
    (served,) = read_feedback(tmp_path / "log").served
    z, _ = logits_and_labels(10, seed=5, sharpness=2.5)
    prior: Prior = card_of(model).prior
    ratio = np.log(np.asarray(prior.train)) - math.log(1 / 10)
    assert served.logits == pytest.approx(z / 2 - ratio, abs=1e-5)
    assert served.model == Model("birds", "1", hashlib.sha256(model.read_bytes()).hexdigest(), served.model.classes)
