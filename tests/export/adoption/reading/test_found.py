"""Which output is taken, and what is said where none or several could be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from calibrant.errors import ModelError

from ..conftest import NAMES, Foreigners, Maker


def features_too(m: Maker) -> Sequence[str]:
    f = m.body()
    return [m.put("Identity", f, output="last_hidden_state"), m.head(f, output="logits")]


def two_heads(first: str, second: str) -> Any:
    def end(m: Maker) -> Sequence[str]:
        f = m.body()
        return [m.head(f, output=first), m.head(f, output=second)]

    return end


def softmax_beside(m: Maker) -> Sequence[str]:
    z = m.head(m.body())
    return [m.put("Softmax", z, axis=1, output="probabilities"), m.put("Identity", z, output="scores")]


def test_a_second_output_of_features_is_no_rival(foreigners: Foreigners) -> None:
    found = foreigners.adopt(foreigners.write(features_too)).found
    assert found.output == "logits"


def test_of_two_heads_the_one_that_is_called_logits(foreigners: Foreigners) -> None:
    found = foreigners.adopt(foreigners.write(two_heads("auxiliary", "main_logits"))).found
    assert found.output == "main_logits"


def test_two_heads_that_nothing_tells_apart_are_asked_for(foreigners: Foreigners) -> None:
    path = foreigners.write(two_heads("a", "b"))
    with pytest.raises(ModelError, match="several outputs that may be the classes: a, b"):
        foreigners.adopt(path)
    assert foreigners.adopt(path, output="b").found.output == "b"
    assert not list(foreigners.folder.glob(".calibrant-*"))


def test_logits_are_taken_before_their_softmax(foreigners: Foreigners) -> None:
    found = foreigners.adopt(foreigners.write(softmax_beside)).found
    assert (found.output, found.kind) == ("scores", "logits")
    assert found.floor is None


def test_a_sigmoid_a_label_is_independent_unless_told_otherwise(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.put("Sigmoid", m.head(m.body())))
    assert foreigners.adopt(path).found.independent
    exclusive = foreigners.adopt(path, outcome="exclusive")
    assert not exclusive.found.independent
    assert exclusive.card.outcome == "exclusive"


def test_as_many_columns_as_names_are_asked_for(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.head(m.body(), output="scores"))
    with pytest.raises(ModelError, match=r'4 class names, but no output has 4 columns; it has "scores" \[5\]'):
        foreigners.adopt(path, classes=NAMES[:4])


def test_an_output_for_each_class_is_told_how_to_become_one(foreigners: Foreigners) -> None:
    """skl2onnx with zipmap="columns"."""

    def columns(m: Maker) -> list[str]:
        p = m.put("Softmax", m.head(m.body()), axis=1)
        return [m.put("Gather", p, m.weight(k, dtype=np.int64), axis=1) for k in range(len(NAMES))]

    with pytest.raises(ModelError, match="each of its 5 classes is an output of its own; .*zipmap=False"):
        foreigners.adopt(foreigners.write(columns))


def test_two_classes_may_be_one_column(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.put("Sigmoid", m.head(m.body(), classes=1)))
    done = foreigners.adopt(path, classes=("no", "yes"))
    assert done.found.kind == "probabilities"
    assert not done.found.independent
    assert done.card.outcome == "exclusive"
