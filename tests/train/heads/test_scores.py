from __future__ import annotations

import numpy as np
import pytest

from calibrant.train.heads.scores import METRICS, measure


def test_every_metric_agrees_with_scikit_learn() -> None:
    from sklearn import metrics

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 200)
    y = rng.integers(0, 5, 200)
    found = measure(p, y, np.asarray([9, 7, 5, 3, 1]), background=0)
    predicted = p.argmax(1)
    assert set(found) == set(METRICS)
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(y, predicted, average="macro"))
    weighted = metrics.f1_score(y, predicted, average="weighted", labels=[1, 2, 3, 4])
    assert found["weighted_f1_fg"] == pytest.approx(weighted)
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


def test_a_group_is_the_mean_of_its_classes_that_have_labels() -> None:
    """Classes 0 and 1 are the tail; nothing is labelled 1, so that its recall of 0 is not counted."""
    p = np.eye(6)[[0, 2, 3, 4, 5]]
    found = measure(p, np.asarray([0, 2, 3, 4, 5]), np.asarray([1, 2, 30, 40, 500, 600]))
    assert found["tail_accuracy"] == 1.0
