import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.verdict.causes.ranking import ranking_cause


def evaluation(confidence, correct, classes=4):
    p = np.repeat(((1 - confidence) / (classes - 1))[:, None], classes, axis=1)
    p[:, 0] = confidence
    return evaluate(p, np.where(correct, 0, 1))


def test_sure_and_right_at_random_is_a_lost_ranking():
    rng = np.random.default_rng(0)
    c = rng.uniform(0.4, 1, 2000)
    cause = ranking_cause(evaluation(c, rng.random(2000) < 0.7))
    assert cause is not None
    assert "does not tell right rows from wrong ones" in cause.text
    assert ranking_cause(evaluation(c, rng.random(2000) < c)) is None


def test_all_right_has_nothing_to_rank():
    assert ranking_cause(evaluation(np.linspace(0.5, 0.9, 100), np.ones(100, bool))) is None


def test_few_rows_are_no_evidence():
    rng = np.random.default_rng(1)
    c = rng.uniform(0.4, 1, 30)
    assert ranking_cause(evaluation(c, rng.random(30) < 0.7)) is None


def test_a_weaker_ranking_than_promised_is_not_called_lost_on_few_rows():
    """AUROC .58 (.43 to .72) where .75 is promised: less than promised, and it may well tell right from wrong."""
    rng = np.random.default_rng(0)
    c = rng.uniform(0.4, 1, 60)
    e = evaluation(c, rng.random(60) < 0.35 + 0.5 * c)
    assert e.metrics["auroc"].high < e.metrics["auroc"].null
    assert ranking_cause(e) is None


def test_a_constant_claim_ranks_nothing():
    assert ranking_cause(evaluation(np.full(500, 0.7), np.arange(500) < 350)) is not None


def test_guesses_at_chance_are_named_as_such():
    rng = np.random.default_rng(2)
    cause = ranking_cause(evaluation(rng.uniform(0.4, 1, 1000), rng.random(1000) < 0.25))
    assert cause is not None
    assert "hardly better than chance" in cause.text
