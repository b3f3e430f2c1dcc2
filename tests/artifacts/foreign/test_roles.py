"""Columns find their roles by name; numbers beside them are not taken for classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.foreign.columns import Columns, text_column
from calibrant.artifacts.foreign.roles import Named, Roles, assign
from calibrant.errors import DataError

N = 30
Z = np.random.default_rng(0).normal(size=(N, 3))
Y = np.arange(N) % 3


def roles(values: dict[str, Any], named: Named | None = None) -> Roles:
    return assign(Columns(values), named or Named(), Path("p"))


@pytest.mark.parametrize("label", ["label", "y_true", "target", "Class"])
@pytest.mark.parametrize("scores", ["logits", "probs", "predict_proba", "anything"])
def test_one_matrix_is_the_scores(label: str, scores: str) -> None:
    found = roles({scores: Z, label: Y})
    np.testing.assert_array_equal(found.scores, Z)
    assert found.labels is Y


@pytest.mark.parametrize("prefix", ["logit_", "p_", "prob.", "class ", ""])
def test_a_column_for_each_class_gives_their_names(prefix: str) -> None:
    found = roles({"id": text_column(map(str, Y)), **{f"{prefix}{c}": Z[:, k] for k, c in enumerate("xyz")}})
    assert found.score_names == ("x", "y", "z")
    np.testing.assert_array_equal(found.scores, Z)


def test_numbered_columns_stand_in_the_order_of_their_numbers() -> None:
    wide = np.random.default_rng(1).normal(size=(N, 12))
    found = roles({str(k): wide[:, k] for k in sorted(range(12), key=str)})
    np.testing.assert_array_equal(found.scores, wide)


def test_numbers_beside_the_scores_are_left_and_said() -> None:
    values = {f"p_{k}": Z[:, k] for k in range(3)} | {"loss": Z[:, 0], "label": Y, "confidence": Z[:, 1]}
    found = roles(values)
    assert found.scores.shape == (N, 3)
    assert found.notes == ("not read: loss, confidence",)


def test_confidence_beside_the_classes_is_no_class() -> None:
    half = np.full(N, 0.5)
    found = roles({"cat": half, "dog": half, "conf": half, "pred": np.ones(N, int), "label": Y})
    assert found.score_names == ("cat", "dog")
    assert found.notes == ("not read: conf, pred",)


def test_axes_of_one_place_are_left_out_and_others_named() -> None:
    np.testing.assert_array_equal(roles({"logits": Z[:, :, None, None], "label": Y}).scores, Z)
    with pytest.raises(DataError, match=r"it has logits \[30, 2, 2\], expected \[N, C\]"):
        roles({"logits": np.zeros((N, 2, 2)), "label": Y})


def test_logits_come_before_probabilities() -> None:
    assert roles({"probs": Z, "logits": 2 * Z}).scores[0, 0] == 2 * Z[0, 0]
    with pytest.raises(DataError, match="several columns could be the scores: a, b"):
        roles({"a": Z, "b": Z})


def test_weights_groups_ids_and_splits_are_found() -> None:
    found = roles({"logits": Z, "weight": Y, "group": Y, "group_site": Y, "split": Y, "filename": Y})
    assert list(found.groups) == ["group", "site"]
    assert found.weights is Y
    assert found.split is Y
    assert found.ids is Y


def test_what_is_named_wins() -> None:
    values = {"a": Z[:, 0], "b": Z[:, 1], "c": Z[:, 2], "age": Z[:, 0], "who": Y, "hospital": Y}
    found = roles(values, Named(scores=("[ab]", "c"), label="who", groups=("hospital",)))
    assert found.score_names == ("a", "b", "c")
    assert list(found.groups) == ["hospital"]
    with pytest.raises(DataError, match='has no column "whoo"; did you mean "who"'):
        roles(values, Named(label="whoo"))


def test_one_hot_columns_are_one_matrix() -> None:
    values = {f"p_{k}": Z[:, k] for k in range(3)} | {f"label_{k}": (k == Y).astype(int) for k in range(3)}
    found = roles(values)
    assert found.labels is not None
    np.testing.assert_array_equal(found.labels.argmax(axis=1), Y)
    assert found.scores.shape == (N, 3)


def test_names_of_classes_and_prior_have_the_length_of_the_classes() -> None:
    found = roles({"logits": Z, "labels": Y, "classes": text_column("xyz"), "train_prior": np.full(3, 1 / 3)})
    assert found.class_names == ("x", "y", "z")
    assert found.train_prior is not None


def test_a_table_without_scores_is_refused_with_what_it_has() -> None:
    with pytest.raises(DataError, match=r"no column of scores \(it has name\)"):
        roles({"label": Y, "name": text_column(map(str, Y))})
