"""How a number is written: class-wise ECE freed of noise, and not at all where nothing can be told."""

from __future__ import annotations

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.table import metric
from calibrant.calibration.report.tables import by_chance, headline, interval, shown, withheld

CLASSWISE, ECE = metric("classwise_ece"), metric("ece")


def test_the_headline_of_class_wise_ece_is_the_value_freed_of_noise() -> None:
    m = Measured(0.0211, 0.004, 0.013, 0.012, 0.014, true_error=0.0091, largest=0.2)
    assert headline(m, CLASSWISE) == "0.91 %"
    assert by_chance(m, CLASSWISE) == "measured 2.11 %, of which about 1.20 % is chance"
    assert (shown(m, CLASSWISE), shown(m, ECE)) == (0.0091, 0.0211)
    assert (headline(m, ECE), by_chance(m, ECE)) == ("2.11 %", "1.20 %")


def test_an_interval_over_more_than_half_of_what_is_possible_tells_nothing() -> None:
    wide = Measured(0.001, 0.0, 0.0011, 0.001, 0.002, true_error=0.0004, largest=0.002)
    just = Measured(0.001, 0.0, 0.0010, 0.001, 0.002, true_error=0.0004, largest=0.002)
    assert headline(wide, CLASSWISE) == "cannot be told"
    assert headline(just, CLASSWISE) == "0.04 %"


def test_what_an_older_file_measured_is_shown_as_it_was() -> None:
    old = Measured(0.02, 0.01, 0.03, 0.005)
    assert (headline(old, CLASSWISE), by_chance(old, CLASSWISE)) == ("2.00 %", "0.50 %")


def test_a_number_without_interval_says_why_once_for_each_reason() -> None:
    known, none = Measured(0.02, 0.01, 0.03), Measured(0.02)
    few, other = known.without_interval("too few rows"), known.without_interval("no row is wrong")
    assert [interval(m, "percent") for m in (known, none, few)] == ["1.00 .. 3.00 %", "-", "cannot be told"]
    found = {"over_ece": few, "nll": other, "ece": few, "brier": none, "mean_confidence": few}
    assert withheld(found) == [
        "No interval of NLL: no row is wrong.",
        "No interval of ECE, over-confident part: too few rows.",
    ]
    assert withheld({"ece": known, "brier": none}) == []
