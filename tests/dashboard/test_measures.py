"""What the pages show is what the calibration commands say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import evaluate, metrics
from calibrant.dashboard import measures, rows
from calibrant.dashboard.artifacts import Run
from calibrant.dashboard.measures import Scored
from calibrant.dashboard.shelf import scan
from calibrant.predictions import read_predictions

from .conftest import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Scored, Scored]:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "a", rows=4000, seed=3)
    shelf = scan(root)
    found = shelf.runs[0]
    test = found.find("test")
    assert test is not None
    (calibrator,) = shelf.calibrators_for(found, test)
    return found, Scored.of(test), Scored.of(test, calibrator)


@pytest.fixture(scope="module")
def probabilities(run: tuple[Run, Scored, Scored]) -> tuple[np.ndarray, np.ndarray]:
    """After calibration: before it every bin errs to the same side, and ECE is the same for any number of bins."""
    after = run[2]
    data = read_predictions(after.path.path)
    assert after.calibrator is not None
    return after.calibrator.calibrator.probabilities(data.logits), data.labels


@pytest.mark.parametrize("bins", range(2, 101))
def test_every_number_of_bins_equals_the_direct_computation(run, probabilities, bins: int) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    probs, labels = probabilities
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    edges = np.arange(bins + 1) / bins
    index = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    diagram = measures.diagram(after, bins)
    assert diagram.rows.tolist() == np.bincount(index, minlength=bins).tolist()
    gap = np.bincount(index, confidence - right, bins)
    assert measures.calibration_error(after, bins).value == pytest.approx(np.abs(gap).sum() / len(labels), abs=1e-9)


def test_the_number_of_bins_matters_here(run) -> None:  # type: ignore[no-untyped-def]
    values = {round(measures.calibration_error(run[2], bins).value, 6) for bins in (5, 10, 15, 30)}
    assert len(values) == 4


@pytest.mark.parametrize("uniform", [False, True])
def test_the_parts_equal_the_whole_evaluation(run, uniform: bool) -> None:  # type: ignore[no-untyped-def]
    for scored in run[1:]:
        prior = "uniform" if uniform else None
        whole = evaluate(measures.statistics(scored), bins=20, target_prior=prior)
        assert measures.calibration_error(scored, 20, uniform=uniform) == whole.metrics["ece"]
        halves = measures.over_under(scored, 20, uniform=uniform)
        assert halves.over == whole.metrics["over_ece"].value
        assert halves.under == whole.metrics["under_ece"].value
        assert measures.diagram(scored, 20, uniform=uniform).accuracy[-1] == whole.reliability["accuracy"][-1]


def test_the_overview_equals_the_whole_evaluation(run) -> None:  # type: ignore[no-untyped-def]
    _, before, after = run
    line = measures.summary(before, after)
    first, second = measures.scores(before), measures.scores(after)
    assert line.accuracy.value == first.metrics["accuracy"].value
    assert (line.accuracy.low, line.accuracy.high) == (first.metrics["accuracy"].low, first.metrics["accuracy"].high)
    assert line.balanced_accuracy == pytest.approx(first.metrics["balanced_accuracy"].value, rel=1e-12)
    assert line.nll == pytest.approx(first.metrics["nll"].value, rel=1e-12)
    assert line.nll_after == pytest.approx(second.metrics["nll"].value, rel=1e-12)
    assert line.ece == first.metrics["ece"]
    assert line.ece_after == second.metrics["ece"]
    assert line.temperature == pytest.approx(2.0, abs=0.15)


def test_rows_predicted_as_a_class_equal_the_class_of_the_evaluation(run) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    whole = evaluate(measures.statistics(after), bins=15, groups={"two": [2, 5]})
    for predicted, expected in (((4,), whole.per_class[4]), ((2, 5), whole.groups[0])):
        found = measures.selection(after, 15, predicted)
        assert (found.rows, found.precision, found.ece) == (expected.predicted, expected.precision, expected.ece)


def test_uniform_weighting_is_a_weighted_metric(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    weights = (1 / np.bincount(labels))[labels]
    expected = metrics.ece(probs, labels, bins=12, weights=weights)
    assert measures.calibration_error(run[2], 12, uniform=True).value == pytest.approx(expected, abs=1e-9)


# ---- single rows ----


def test_the_rows_of_a_bin_are_as_many_as_the_diagram_says(run) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    table = rows.rows_of(after)
    for bins in (7, 15):
        counts = [len(rows.in_bin(table, bins, number, None)) for number in range(1, bins + 1)]
        assert counts == measures.diagram(after, bins).rows.tolist()


def test_rows_of_a_bin_are_the_wrong_ones_first_by_falling_confidence(run) -> None:  # type: ignore[no-untyped-def]
    table = rows.rows_of(run[2])
    index = rows.in_bin(table, 10, 6, None)
    right, confidence = table.right[index], table.confidence[index]
    assert right.tolist() == sorted(right.tolist())
    assert (np.diff(confidence[~right]) <= 0).all()
    assert (np.diff(confidence[right]) <= 0).all()
    assert 0 < right.sum() < len(right)


def test_worst_rows_are_wrong_and_sure_or_right_and_unsure(run) -> None:  # type: ignore[no-untyped-def]
    table = rows.rows_of(run[2])
    over, under = rows.worst(table, "over", None, 5), rows.worst(table, "under", None, 5)
    assert not table.right[over].any()
    assert table.confidence[over].tolist() == sorted(table.confidence[~table.right])[::-1][:5]
    assert table.right[under].all()
    assert table.confidence[under].tolist() == sorted(table.confidence[table.right])[:5]


def test_read_gives_the_id_label_and_prediction_of_each_row(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    probs, labels = probabilities
    data = read_predictions(after.path.path)
    index = np.array([3999, 0, 17])
    found = rows.read(after, rows.rows_of(after), index)
    assert [r.id for r in found] == [data.ids[i] for i in index]
    assert [r.label for r in found] == labels[index].tolist()
    assert [r.confidence for r in found] == pytest.approx(probs[index].max(axis=1).tolist(), abs=1e-12)


# ---- equal mass, and two runs ----


@pytest.mark.parametrize("uniform", [False, True])
def test_equal_mass_is_the_adaptive_ece_of_the_evaluation(run, uniform: bool) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    whole = evaluate(measures.statistics(after), bins=12, target_prior="uniform" if uniform else None)
    assert measures.mass_error(after, 12, uniform=uniform) == whole.metrics["adaptive_ece"]
    diagram = measures.mass_diagram(after, 12, uniform=uniform)
    assert diagram.rows.sum() == 4000
    if not uniform:
        assert set(diagram.rows.tolist()) == {333, 334}


def test_two_runs_on_the_same_rows_are_compared_pair_by_pair(run) -> None:  # type: ignore[no-untyped-def]
    _, before, after = run
    found = measures.differences(before, after)
    assert found is not None
    assert found["ece"].difference == pytest.approx(
        measures.calibration_error(after, 15).value - measures.calibration_error(before, 15).value, abs=1e-9
    )
    assert found["accuracy"].difference == 0
    assert found["nll"].clear


def test_runs_on_other_rows_have_no_paired_comparison(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write_run(tmp_path / "b", rows=4000, seed=9)
    other = scan(tmp_path).runs[0].find("test")
    assert other is not None
    assert measures.differences(run[1], Scored.of(other)) is None
