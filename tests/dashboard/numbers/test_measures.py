"""What the pages show is what the calibration commands say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import evaluate, metrics
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import measures, rows
from calibrant.dashboard.numbers.measures import Target
from calibrant.dashboard.numbers.predictions_through import Scored

from ..conftest import write_run


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


SKEWED = tuple((np.arange(1, 11) / 55).tolist())


@pytest.mark.parametrize("target", [None, "uniform", SKEWED])
def test_the_parts_equal_the_whole_evaluation(run, target: Target) -> None:  # type: ignore[no-untyped-def]
    for scored in run[1:]:
        whole = evaluate(measures.statistics(scored), bins=20, target_prior=target)
        for kind, name in (("width", "ece"), ("mass", "adaptive_ece"), ("smooth", "smooth_ece")):
            found = measures.calibration_error(scored, 20, kind=kind, target=target)  # type: ignore[arg-type]
            assert found == whole.metrics[name]
            parts = measures.over_under(scored, 20, kind=kind, target=target)  # type: ignore[arg-type]
            assert parts.over + parts.under == pytest.approx(found.value, abs=1e-12)
        halves = measures.over_under(scored, 20, target=target)
        assert halves.over == whole.metrics["over_ece"].value
        assert halves.under == whole.metrics["under_ece"].value
        assert measures.diagram(scored, 20, target=target).accuracy[-1] == whole.reliability["accuracy"][-1]


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
    assert measures.calibration_error(run[2], 12, target="uniform").value == pytest.approx(expected, abs=1e-9)
    weights = (np.asarray(SKEWED) / np.bincount(labels))[labels]
    expected = metrics.ece(probs, labels, bins=12, weights=weights)
    assert measures.calibration_error(run[2], 12, target=SKEWED).value == pytest.approx(expected, abs=1e-9)


# ---- single rows ----


# ---- equal mass, and two runs ----


def test_bins_of_equal_mass_hold_equally_many_rows_and_those_that_are_listed(run) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    table = rows.rows_of(after)
    for predicted, total in ((None, 4000), ((1, 4), int(np.isin(table.predicted, (1, 4)).sum()))):
        diagram = measures.diagram(after, 12, kind="mass", predicted=predicted)
        assert diagram.rows.sum() == total
        assert set(diagram.rows.tolist()) <= {total // 12, total // 12 + 1}
        for number in (1, 7, 12):
            index = rows.in_bin(table, 12, number, predicted, mass=True)
            assert len(index) == diagram.rows[number - 1]
            assert table.confidence[index].mean() == pytest.approx(diagram.confidence[number - 1], abs=1e-12)
            assert table.right[index].mean() == pytest.approx(diagram.accuracy[number - 1], abs=1e-12)


def test_rows_of_a_bin_of_equal_weight_follow_the_class_prior(run) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    weights = measures.weights_of(measures.statistics(after), SKEWED)
    diagram = measures.diagram(after, 9, kind="mass", target=SKEWED)
    table = rows.rows_of(after)
    counts = [len(rows.in_bin(table, 9, n, None, mass=True, weights=weights)) for n in range(1, 10)]
    assert counts == diagram.rows.tolist()
    assert counts != measures.diagram(after, 9, kind="mass").rows.tolist()


def test_the_selected_rows_have_the_error_of_the_chosen_kind(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    probs, labels = probabilities
    mine = np.isin(probs.argmax(axis=1), (2, 5))
    mass = measures.selection(after, 10, (2, 5), kind="mass").ece
    smooth = measures.selection(after, 10, (2, 5), kind="smooth").ece
    assert mass is not None
    assert smooth is not None
    assert mass.value == pytest.approx(metrics.adaptive_ece(probs[mine], labels[mine], bins=10), abs=1e-12)
    assert smooth.value == pytest.approx(metrics.smooth_ece(probs[mine], labels[mine]), abs=2e-4)


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
