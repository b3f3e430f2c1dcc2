"""The decision about a canary, on counts whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrant.calibration.monitoring.canary import (
    CanaryTrial,
    Finding,
    Judgement,
    Labelled,
    Traffic,
    Version,
    latency_bin,
)
from calibrant.calibration.monitoring.canary_rules import CanaryRules

RULES = CanaryRules(labels=100, requests=100)


def version(
    rows: int, *, accuracy: float = 0.8, confidence: float = 0.8, failed: int = 0, slow: int = 0, bad: int = 0,
    alarm: bool = False,
) -> Version:  # fmt: skip
    """`slow` of its requests take a second, the others 10 ms."""
    traffic, labelled = Traffic(rows, failed), Labelled()
    traffic.latency[latency_bin(1.0)] += slow
    traffic.latency[latency_bin(0.01)] += rows - slow
    labelled.took(confidence, True)
    bins = labelled.bins
    at = int(bins.rows.argmax())
    bins.rows[at], bins.weight[at] = rows, rows
    bins.confidence_sum[at], bins.correct_sum[at] = confidence * rows, round(accuracy * rows)
    return Version(traffic, rows, bad, labelled, alarm)


def judged(canary: Version, old: Version | None = None, rules: CanaryRules = RULES) -> Judgement:
    return CanaryTrial(rules).look(old or version(10_000), canary)


def test_one_that_is_as_good_is_promoted_once_there_is_enough_of_it() -> None:
    assert judged(version(99)).decision is None
    assert judged(version(120)).decision is None  # 5 points of accuracy are not told by 120 labels
    found = judged(version(4000))
    assert found.decision == "promote"
    assert found.reason.startswith("accuracy 80.0 % against 80.0 %")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"accuracy": 0.65, "confidence": 0.65}, "accuracy 65.0 %"),
        ({"confidence": 0.99}, "ECE"),
        ({"failed": 60}, "failed requests"),
        ({"slow": 300}, "slower than 1.25 times"),
        ({"bad": 60}, "no numbers"),
        ({"alarm": True}, "calibration alarm"),
    ],
)
def test_one_that_is_worse_in_one_figure_is_rolled_back_and_told_why(changes: dict[str, float], says: str) -> None:
    found = judged(version(2000, **changes))  # type: ignore[arg-type]
    assert found.decision == "roll back"
    assert says in found.reason


def test_an_alarm_that_the_old_version_has_too_is_no_fault_of_the_canary() -> None:
    assert judged(version(4000, alarm=True), version(10_000, alarm=True)).decision == "promote"


def test_without_labels_only_requests_are_judged() -> None:
    rules = CanaryRules(labels=0, requests=100)
    blind = version(2000)
    unlabelled = Version(blind.traffic, blind.rows)
    assert judged(unlabelled).decision is None
    assert judged(unlabelled, rules=rules).decision == "promote"


def test_a_figure_is_looked_at_only_when_the_rows_have_doubled() -> None:
    trial = CanaryTrial(RULES)
    first = trial.look(version(10_000), version(100)).findings
    assert {f.rows for f in first} == {100}
    assert trial.look(version(10_000), version(199, failed=150, slow=150)).findings[0].rows == 100
    assert trial.look(version(10_000), version(200)).findings[0].rows == 200


def test_the_difference_is_newcombes_method_10() -> None:
    """56 of 70 less 48 of 80, worked in Newcombe (1998, table II, a): 0.0524 to 0.3339 at 95 %."""
    rules = CanaryRules(labels=70, requests=1, alpha=0.5)  # so that look 1 is at 5 %: .5 / (5 * 2)
    found = judged(version(70, accuracy=0.8), version(80, accuracy=0.6), rules).findings[0]
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))


def test_worse_means_the_whole_interval_lies_beyond_the_margin_in_the_bad_direction() -> None:
    def state(figure: str, low: float, high: float) -> str:
        return Finding(figure, 0.5, 0.5, low, high, 0.05, 100).state

    assert [state("ece", *i) for i in ((0.06, 0.1), (-0.1, 0.05), (0.0, 0.06))] == ["worse", "no worse", "open"]
    assert [state("accuracy", *i) for i in ((-0.1, -0.06), (-0.05, 0.1), (-0.06, 0.0))] == ["worse", "no worse", "open"]


def test_latencies_lie_in_eight_bins_an_octave() -> None:
    assert [latency_bin(s) for s in (0.0, 1e-4, 2e-4, 4e-4, 1e9)] == [0, 0, 8, 16, 161]
    edges = 1e-4 * 2.0 ** (np.arange(1, 20) / 8)
    assert [latency_bin(e * 0.999) for e in edges] == list(range(1, 20))


def test_counts_of_several_processes_add_up_and_pass_through_json() -> None:
    one, two = Traffic(), Traffic(failed=2)
    one.took(0.01)
    two.took(0.01)
    one.add(Traffic.from_dict(two.to_dict()))
    assert (one.answered, one.failed, one.latency[latency_bin(0.01)]) == (2, 2, 2)


def test_the_binned_labels_are_those_of_the_rolling_ece() -> None:
    found = Labelled()
    for confidence, correct in ((0.9, True), (0.9, False), (1 / 3, True)):
        found.took(confidence, correct)
    assert (len(found), found.correct) == (3, 2)
    assert found.bins.rows.tolist() == [0, 0, 0, 0, 1, *[0] * 8, 2, 0]
    copied = found.copy()
    found.took(0.9, True)
    assert len(copied) == 3
    assert math.isclose(copied.bins.confidence_sum.sum(), 1.8 + 1 / 3)
