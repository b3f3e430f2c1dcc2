"""Metrics as means of one number a row."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.train.heads.scores import METRICS, measure
from calibrant.train.jobs.rows import differences, pack_rows, row_values

COUNTS = np.asarray([50, 20, 10, 5])


def example(seed: int = 0, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.random.default_rng(9).choice(4, n, p=[0.5, 0.3, 0.15, 0.05]).astype(np.int64)
    z = rng.normal(size=(n, 4)) + 1.2 * np.eye(4)[labels]
    p = np.exp(z)
    return p / p.sum(1, keepdims=True), labels


def test_rows_are_kept_to_the_bit_of_what_is_compared() -> None:
    probs, labels = example()
    block = pack_rows(probs, labels, COUNTS, None)
    assert row_values("accuracy", block).tolist() == (probs.argmax(1) == labels).tolist()  # type: ignore[union-attr]
    nll = row_values("nll", block)
    np.testing.assert_allclose(nll, -np.log(probs[np.arange(400), labels]), rtol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_their_mean_is_the_metric(metric: str) -> None:
    probs, labels = example()
    values = row_values(metric, pack_rows(probs, labels, COUNTS, 0))
    if metric in ("aece", "macro_precision", "macro_recall"):
        assert values is None
        return
    assert values is not None
    assert values.mean() == pytest.approx(measure(probs, labels, COUNTS, background=0)[metric], rel=1e-6)


@pytest.mark.parametrize("metric", ["macro_f1", "macro_f1_fg", "weighted_f1", "weighted_f1_fg"])
def test_influence_on_an_f1_is_its_derivative_by_the_weight_of_a_row(metric: str) -> None:
    probs, labels = example(n=60)
    values = row_values(metric, pack_rows(probs, labels, COUNTS, 0))
    assert values is not None
    whole, times = measure(probs, labels, COUNTS, background=0)[metric], 1000
    for row in (0, 7, 31):
        index = np.concatenate([np.repeat(np.arange(60), times), [row]])  # weight of one row up by 1/1000
        moved = measure(probs[index], labels[index], COUNTS, background=0)[metric]
        # The new weight shares the total: (1 + 1/1000) rows, hence value - mean.
        assert (moved - whole) * times * 60 == pytest.approx(values[row] - values.mean(), rel=5e-3, abs=1e-3)


def test_other_rows_or_none_at_all_are_not_compared() -> None:
    a, b = (pack_rows(*example(seed), COUNTS, None) for seed in (0, 1))
    d = differences("accuracy", [a, a], [b, a])
    assert d is not None
    assert d.shape == (2, 400)
    assert not d[1].any()
    assert differences("accuracy", [a, None], [b, b]) is None
    probs, labels = example(2)
    other = pack_rows(probs[::-1], labels[::-1].copy(), COUNTS, None)
    assert differences("accuracy", [a], [other]) is None
