import numpy as np
import pytest

from calibrant.calibration import labels_needed
from calibrant.calibration.verdict.labels_needed import Claims, labels_table
from calibrant.errors import ConfigError

ONE_BIN = Claims(np.array([1.0]), np.array([0.5]))


def test_one_bin_by_hand():
    # accuracy .5 without an error, .45 with it; far from 0 |g| is normal, at 0 its mean is .7979 sd, its sd .6028 sd
    none, there = np.sqrt(0.25), np.sqrt(0.45 * 0.55)
    n = labels_needed(ONE_BIN, error=0.05)
    assert n == pytest.approx(((1.28155 * there + (0.79788 + 1.64485 * 0.60281) * none) / 0.05) ** 2, rel=0.01)


def test_beyond_another_error_both_are_normal():
    large, small = np.sqrt(0.4 * 0.6), np.sqrt(0.45 * 0.55)
    n = labels_needed(ONE_BIN, error=0.10, beyond=0.05)
    assert n == pytest.approx(((1.28155 * large + 1.1 * 1.95996 * small) / 0.05) ** 2, rel=0.03)


def test_the_width_of_the_interval():
    assert labels_needed(ONE_BIN, width=0.04) == int(np.ceil((3.91993 / 0.04) ** 2 * 0.25))


def test_smaller_errors_and_less_certain_claims_need_more():
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], 500)
    needed = [labels_needed(probs, error=e) for e in (0.02, 0.05, 0.1)]
    assert needed == sorted(needed, reverse=True)
    sure = np.tile([0.99, 0.005, 0.005], (500, 1))
    assert labels_needed(sure, error=0.05) < needed[1]


def test_what_was_simulated():
    """Shares and claims of a typical network: at the rows asked for the error is seen in 90 of 100 samples."""
    c = np.array([0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.97])
    s = np.array([0.04, 0.06, 0.08, 0.09, 0.11, 0.15, 0.47])
    claims = Claims(s / s.sum(), c)
    rng, x = np.random.default_rng(1), 0.05
    n = labels_needed(claims, error=x)

    def observed(gap):
        rows = rng.multinomial(n, claims.share, 4000)
        hits = rng.binomial(rows, np.clip(c - gap, 0, 1))
        return np.abs(rows * c - hits).sum(axis=1) / n

    power = (observed(x) > np.quantile(observed(0.0), 0.95)).mean()
    assert 0.87 < power < 0.95


@pytest.mark.parametrize(
    "wrong", [{}, {"error": 0.1, "width": 0.1}, {"error": 5}, {"error": 0.05, "beyond": 0.05}, {"width": 0}]
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ConfigError):
        labels_needed(ONE_BIN, **wrong)


def test_the_table_answers_each_question_with_its_own_formula():
    claims = Claims.of_probabilities(np.tile([0.8, 0.2], (10, 1)))
    told = labels_table(claims, (0.1,), (0.1,), margin=0.05)
    assert told["to_see"] == [{"error": 0.1, "rows": labels_needed(claims, error=0.1)}]
    assert told["to_know"] == [{"width": 0.1, "rows": 246}]  # (2 * 1.96 / .1)^2 * .8 * .2 = 245.9
    assert told["to_judge"] == {"margin": 0.05, "rows": labels_needed(claims, error=0.1, beyond=0.05)}
