from __future__ import annotations

import numpy as np
import pytest

from calibrant.train.heads.scores import METRICS, measure
from calibrant.train.heads.sweep.table import compare, holm, make_table


def test_every_metric_agrees_with_scikit_learn() -> None:
    from sklearn import metrics

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 200)
    y = rng.integers(0, 5, 200)
    found = measure(p, y, np.asarray([9, 7, 5, 3, 1]), background=0)
    predicted = p.argmax(1)
    assert set(found) == set(METRICS)
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(y, predicted, average="macro"))
    assert found["macro_f1_fg"] == pytest.approx(metrics.f1_score(y, predicted, average="macro", labels=[1, 2, 3, 4]))
    assert found["weighted_f1"] == pytest.approx(metrics.f1_score(y, predicted, average="weighted"))
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, predicted))
    assert found["macro_precision"] == pytest.approx(metrics.precision_score(y, predicted, average="macro"))
    assert found["macro_recall"] == pytest.approx(metrics.recall_score(y, predicted, average="macro"))
    assert found["nll"] == pytest.approx(metrics.log_loss(y, p))


def test_groups_are_thirds_by_training_images() -> None:
    p = np.eye(3)[[0, 0, 1, 2, 2, 2]]
    y = np.asarray([0, 1, 1, 2, 2, 0])
    found = measure(p, y, np.asarray([5, 50, 500]))
    assert found["head_accuracy"] == 1.0  # class 2: 2 of 2
    assert found["medium_accuracy"] == 0.5  # class 1: 1 of 2
    assert found["tail_accuracy"] == 0.5  # class 0: 1 of 2


def test_paired_comparison_by_hand() -> None:
    """d = (.1, .2, .3): mean .2, standard error .1 / sqrt(3); t(2) quantile 4.30265, t = 3.4641, p = .0742."""
    d = compare(np.asarray([0.5, 0.7, 0.9]), np.asarray([0.4, 0.5, 0.6]))
    assert d.delta == pytest.approx(0.2)
    half = 4.302652729911275 * 0.1 / np.sqrt(3)
    assert (d.low, d.high) == pytest.approx((0.2 - half, 0.2 + half))
    assert d.p == pytest.approx(0.0741799, abs=1e-6)


def test_equal_results_have_no_difference_and_one_seed_no_interval() -> None:
    same = compare(np.asarray([0.5, 0.6]), np.asarray([0.5, 0.6]))
    assert (same.delta, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)
    one = compare(np.asarray([0.5]), np.asarray([0.4]))
    assert one.p == 1.0
    assert np.isinf(one.high)


def test_holm_by_hand() -> None:
    # sorted .01, .02, .04: times 3, 2, 1 = .03, .04, .04
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_table_pairs_by_seed_and_sorts_by_the_metric() -> None:
    def row(variant: str, seed: int, value: float) -> dict[str, object]:
        numbers = dict.fromkeys(METRICS, 0.0) | {"macro_f1": value, "ece": 1 - value}
        return {
            "variant": variant,
            "seed": seed,
            "val": numbers,
            "test": numbers,
            "total_strength": 1.0,
            "seconds": 1.0,
        }

    rows = [row("baseline", 1, 0.5), row("baseline", 0, 0.3), row("good", 0, 0.5), row("good", 1, 0.8),
            row("bad", 0, 0.2), row("bad", 1, 0.4)]  # fmt: skip
    table = make_table(rows, ["baseline", "bad", "good"], baseline="baseline", metric="macro_f1", overrides={})
    assert [line.variant for line in table.lines] == ["baseline", "good", "bad"]
    assert table.lines[1].metrics["macro_f1"].delta == pytest.approx(0.25)
    assert table.lines[2].metrics["macro_f1"].delta == pytest.approx(-0.1)
    assert "| good | 0.6500 | +0.2500 |" in table.markdown()
    by_error = make_table(rows, ["baseline", "bad", "good"], baseline="baseline", metric="ece", overrides={})
    assert [line.variant for line in by_error.lines] == ["baseline", "good", "bad"]
    assert "<td>good</td>" in table.html()
