"""True gaps of a given size: exactly that size, and none that a probability does not allow."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from calibrant.calibration.intervals.counts import HitDraws
from calibrant.calibration.intervals.gaps import GapSample, Norm, gap_error
from calibrant.calibration.intervals.simulated import (
    Family,
    families,
    null_errors,
    observed_gaps,
    plausible_gaps,
    spread_normals,
)


def sample(rows: float = 50.0, spread: float = 0.0) -> GapSample:
    p = np.array([0.05, 0.3, 0.7, 0.98])
    return GapSample(
        np.array([0.4, 0.3, 0.2, 0.1]), p, np.array([0.05, 0.1, 0.2, -0.02]), np.full(4, rows), spread + 0 * p
    )


@pytest.mark.parametrize("norm", ["sum", "over", "under", "rms", "max"])
def test_gaps_have_the_size_asked_for_and_stay_possible(norm: Norm) -> None:
    s = sample()
    for family in families(s, norm, plausible_gaps(s, 100)):
        bare = Family(s, norm, family.shape)
        for share in (0.02, 0.3, 0.7, 0.97):
            error = share * s.most(norm)
            gap = bare.of_size(error)
            np.testing.assert_allclose(gap_error(s.share, gap, norm), error, rtol=0.03)
            assert (gap <= s.confidence + 1e-12).all()
            assert (gap >= s.confidence - 1 - 1e-12).all()
            whole = family.of_size(error)  # and beside the other side, where that is as it was drawn
            np.testing.assert_allclose(gap_error(s.share, whole, norm), error, rtol=0.03)


def test_gaps_move_by_what_is_unknown_of_them_and_have_the_size_asked_for() -> None:
    s = sample()
    drawn, unknown = plausible_gaps(s, 100), np.array([0.001, 0.05, 0.05, 0.05])
    family = Family(s, "sum", drawn, unknown=unknown)
    for error in (0.01, 0.08, 0.15, 0.5 * s.most("sum"), 0.97 * s.most("sum")):
        gap = family.of_size(error)
        np.testing.assert_allclose(gap_error(s.share, gap, "sum"), error, rtol=0.03)
        assert (gap <= s.confidence + 1e-12).all()
        assert (gap >= s.confidence - 1 - 1e-12).all()
    # by hand: from .135 to .235, the first gap is known, each of the others moves by twice what is unknown of it
    one = np.array([[0.02, 0.1, 0.2, 0.22]])
    s = GapSample(np.full(4, 0.25), np.full(4, 0.5), one[0], np.full(4, 50.0), np.zeros(4))
    gap = Family(s, "sum", one, unknown=np.array([0.0, 0.05, 0.05, 0.1])).of_size(0.235)
    np.testing.assert_allclose(gap, [[0.02, 0.2, 0.3, 0.42]])


def test_the_largest_error_by_hand() -> None:
    s = sample()
    assert s.most("sum") == pytest.approx(0.4 * 0.95 + 0.3 * 0.7 + 0.2 * 0.7 + 0.1 * 0.98)
    assert s.most("over") == pytest.approx(0.4 * 0.05 + 0.3 * 0.3 + 0.2 * 0.7 + 0.1 * 0.98)
    assert s.most("under") == pytest.approx(0.4 * 0.95 + 0.3 * 0.7 + 0.2 * 0.3 + 0.1 * 0.02)
    assert s.most("max") == pytest.approx(0.98)


def test_what_is_observed_are_counts() -> None:
    s = sample(rows=4)
    gaps = observed_gaps(s, np.zeros((200, 4)), HitDraws(s.counts, 200, 0))
    hits = (s.confidence - gaps) * 4
    np.testing.assert_allclose(hits, np.rint(hits), atol=1e-9)
    assert set(np.rint(hits[:, 1])) == {0.0, 1.0, 2.0, 3.0, 4.0}


def test_confidences_that_differ_in_a_bin_explain_part_of_the_noise() -> None:
    # p .5, variance .25 a row; a spread of .09 leaves .16: sd .4 / .5 of the count's
    one = np.array([1.0])
    narrow, wide = (GapSample(one, one / 2, 0 * one, 100 * one, spread * one) for spread in (0.0, 0.09))
    sd = [np.std(observed_gaps(s, np.zeros((4000, 1)), HitDraws(s.counts, 4000, 1))) for s in (narrow, wide)]
    assert sd[1] / sd[0] == pytest.approx(0.8, abs=1e-6)


def test_a_calibrated_model_shows_the_mean_deviation_of_a_count() -> None:
    # two rows that claim .5: 0, 1 or 2 hits, so an error of .5 in half of the cases
    s = GapSample(np.array([1.0]), np.array([0.5]), np.array([0.0]), np.array([2.0]), np.array([0.0]))
    found = null_errors(s, "sum", 4000)
    assert set(np.unique(found)) == {0.0, 0.5}
    assert found.mean() == pytest.approx(0.25, abs=0.02)  # standard error .004


def test_a_side_without_gaps_gets_some() -> None:
    one = np.array([1.0])
    over = GapSample(one, 0.9 * one, 0.3 * one, 1000 * one, 0 * one)
    with_rest, alone = families(over, "under", plausible_gaps(over, 50))
    for family in (with_rest, alone):
        np.testing.assert_allclose(gap_error(one, Family(over, "under", family.shape).of_size(0.05), "under"), 0.05)
    assert alone.rest is None


def test_what_the_server_calls_loads_no_scipy() -> None:
    code = (
        "import sys, numpy as np\n"
        "from calibrant.calibration.intervals.binned import measure_gaps\n"
        "from calibrant.calibration.intervals.gaps import GapSample\n"
        "from calibrant.calibration.statistics.bins import equal_width\n"
        "c = np.linspace(.5, 1, 100)\n"
        "measure_gaps(GapSample.of(equal_width(c, c > .7, 15)), 'sum')\n"
        "print('scipy' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_normals_stand_at_their_quantiles_and_in_no_order() -> None:
    drawn = spread_normals(400)
    assert np.sort(drawn)[9:11].mean() == pytest.approx(-1.959964, abs=0.001)  # 2.5 %
    assert np.sort(drawn)[389:391].mean() == pytest.approx(1.959964, abs=0.001)
    assert drawn.mean() == pytest.approx(0, abs=1e-9)
    assert drawn.std() == pytest.approx(1, abs=0.01)
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.15
