import pytest

from calibrant.calibration.verdict.causes.significance import binomial_two_sided, holm, two_sided


def test_the_binomial_tail_by_hand():
    # 10 throws of a coin, 1 head: (1 + 10) / 1024, twice
    assert binomial_two_sided(1, 10, 0.5) == pytest.approx(22 / 1024)
    assert binomial_two_sided(9, 10, 0.5) == pytest.approx(22 / 1024)
    assert binomial_two_sided(5, 10, 0.5) == 1.0
    assert binomial_two_sided(3, 3, 1.0) == 1.0
    assert binomial_two_sided(2, 3, 1.0) == 0.0


def test_a_single_miss_among_sure_claims_is_no_proof():
    # 30 claims of .9999: the normal approximation would see 18 standard deviations
    assert two_sided(29.997, 29, 0.003, 30) == pytest.approx(2 * (1 - 0.9999**30), rel=1e-6)


def test_many_varied_rows_are_normal():
    assert two_sided(80, 70, 16, 100) == pytest.approx(0.0124193, abs=1e-6)


def test_holm_stops_at_the_first_that_fails():
    # .05 / 3, .05 / 2, .05 / 1
    assert holm([0.04, 0.01, 0.02], 0.05) == [True, True, True]
    assert holm([0.04, 0.01, 0.03], 0.05) == [False, True, False]
    assert holm([], 0.05) == []
