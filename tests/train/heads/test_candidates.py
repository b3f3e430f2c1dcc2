"""Candidates are heads that exist, and the choice is by NLL out of fold."""

from __future__ import annotations

import numpy as np

from calibrant.train.data.folds import stable_folds
from calibrant.train.heads.candidates import CANDIDATES, best, candidates, judge, undone


def toy() -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], (30, 10)).astype(np.int64)
    x = np.abs(rng.normal(size=(40, 6)) + 0.8 * np.eye(2, 6)[y]).astype(np.float32)
    return x, y, stable_folds(y, [str(i) for i in range(40)], 5)


def test_a_hidden_layer_is_tried_where_every_class_has_images_enough() -> None:
    assert set(candidates(np.asarray([60, 49]), seed=0)) == set(CANDIDATES)
    assert set(candidates(np.asarray([60, 50]), seed=0)) - set(CANDIDATES) == {"hidden layer"}


def test_each_is_judged_on_the_rows_that_judge_and_the_lowest_nll_is_kept() -> None:
    x, y, folds = toy()
    judged = np.ones(40, bool)
    judged[[0, 35]] = False
    found = [judge(n, c, x, y, folds, judged, 2) for n, c in candidates(np.asarray([30, 10]), seed=0).items()]
    assert all(len(j.nll) == 38 and 0 not in j.out.rows for j in found)
    assert float(best(found).nll.mean()) == min(float(j.nll.mean()) for j in found)


def test_closed_forms_get_their_class_shares_back() -> None:
    _, y, _ = toy()
    heads = candidates(np.asarray([30, 10]), seed=0)
    shift = undone(heads["discriminant"], y, 2)
    assert shift is not None
    np.testing.assert_allclose(np.exp(-(shift[0] - shift[1])), 31 / 11)  # one row is added to each class
    assert undone(heads["logistic"], y, 2) is None
