"""Single rows: of a bin, the worst, with their names."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.dashboard.numbers import measures, rows


def test_the_rows_of_a_bin_are_as_many_as_the_diagram_says(run) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    table = rows.rows_of(after)
    for bins in (7, 15):
        counts = [len(rows.in_bin(table, bins, number, None)) for number in range(1, bins + 1)]
        assert counts == measures.diagram(after, bins).rows.tolist()


def test_rows_of_a_bin_are_the_wrong_ones_first_by_falling_confidence(run) -> None:  # type: ignore[no-untyped-def]
    table = rows.rows_of(run[2])
    index = rows.in_bin(table, 10, 6, None)
    right, confidence = table.right[index], table.confidence[index]
    assert right.tolist() == sorted(right.tolist())
    assert (np.diff(confidence[~right]) <= 0).all()
    assert (np.diff(confidence[right]) <= 0).all()
    assert 0 < right.sum() < len(right)


def test_worst_rows_are_wrong_and_sure_or_right_and_unsure(run) -> None:  # type: ignore[no-untyped-def]
    table = rows.rows_of(run[2])
    over, under = rows.worst(table, "over", None, 5), rows.worst(table, "under", None, 5)
    assert not table.right[over].any()
    assert table.confidence[over].tolist() == sorted(table.confidence[~table.right])[::-1][:5]
    assert table.right[under].all()
    assert table.confidence[under].tolist() == sorted(table.confidence[table.right])[:5]


def test_read_gives_the_id_label_and_prediction_of_each_row(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    after = run[2]
    probs, labels = probabilities
    data = read_predictions(after.path.path)
    index = np.array([3999, 0, 17])
    found = rows.read(after, rows.rows_of(after), index)
    assert [r.id for r in found] == [data.ids[i] for i in index]
    assert [r.label for r in found] == labels[index].tolist()
    assert [r.confidence for r in found] == pytest.approx(probs[index].max(axis=1).tolist(), abs=1e-12)
