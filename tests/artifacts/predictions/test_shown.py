"""A notebook sees what predictions are, not ten thousand numbers."""

from __future__ import annotations

import numpy as np

from calibrant.artifacts.predictions import Predictions, Source


def many(n: int) -> Predictions:
    labels = np.arange(n) % 2
    labels[0] = -1
    return Predictions(tuple(f"<{i}>" for i in range(n)), labels, np.zeros((n, 2), np.float32), Source(("cat", "dog")))


def test_the_line_counts_rows_and_labels() -> None:
    assert repr(many(10_000)) == "<Predictions: 10,000 rows, 9,999 with a label, 2 classes: cat, dog>"


def test_the_table_shows_the_first_rows_and_how_many_are_left() -> None:
    page = many(12)._repr_html_()
    assert page.count("<tr>") == 1 + 5
    assert "and 7 more rows" in page
    assert "&lt;1&gt;" in page
    assert "cat" in page


def test_independent_labels_are_named() -> None:
    present = np.array([[1, 1], [0, -1]], np.int8)
    source = Source(("cat", "dog"), outcome="independent")
    both = Predictions(("a", "b"), np.full(2, -1), np.zeros((2, 2), np.float32), source, present=present)
    assert "2 with a label, 2 labels, independent" in repr(both)
    assert "cat, dog" in both._repr_html_()
