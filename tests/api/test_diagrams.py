"""Diagrams are drawn where the caller wants them."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant

pytest.importorskip("matplotlib").use("agg")


def test_diagrams_go_into_the_axes_that_are_given() -> None:
    from matplotlib.figure import Figure

    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(300, 3)) * 2, rng.integers(0, 3, 300)
    report = calibrant.evaluate(z, y, name="mine")
    left, right = Figure().subplots(1, 2)
    assert calibrant.reliability_diagram(report, ax=left) is left
    assert left.get_title(loc="left").startswith("mine\nECE ")
    assert len(left.collections) >= int((np.array(report.evaluation.reliability["rows"]) > 0).sum())
    assert calibrant.risk_coverage([report, report], ax=right) is right
    assert len(right.lines) == 2
    coverage, risk = right.lines[0].get_data()
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(1 - report.accuracy.value)


def test_without_axes_a_figure_is_made() -> None:
    from matplotlib import pyplot

    z = np.eye(3)[np.arange(60) % 3] * 3
    axes = calibrant.reliability_diagram(z, np.arange(60) % 3)
    assert axes.figure is pyplot.gcf()
    pyplot.close(axes.figure)
