"""Which class is taken for which, against a count by hand."""

from __future__ import annotations

import numpy as np

from calibrant.dashboard.numbers.decide import confusion


def test_squares_hold_what_counting_gives_and_lead_to_their_rows(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    predicted, confidence = probs.argmax(axis=1), probs.max(axis=1)
    for least in (0.0, 0.8):
        found = confusion.confusion(run[2], least)
        assert found.classes == tuple(range(10))
        for i in range(10):
            for j in range(10):
                rows = np.flatnonzero((labels == i) & (predicted == j) & (confidence >= least))
                assert found.counts[i, j] == len(rows)
                assert sorted(confusion.rows_behind(run[2], i, j, least)) == rows.tolist()


def test_of_many_classes_those_stay_that_are_confused_most(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    predicted = probs.argmax(axis=1)
    wrong = predicted != labels
    involved = [(wrong & ((labels == k) | (predicted == k))).sum() for k in range(10)]
    found = confusion.confusion(run[2], most=4)
    assert sorted(involved[k] for k in found.classes) == sorted(involved)[-4:]
    inside = np.isin(labels, found.classes) & np.isin(predicted, found.classes)
    assert found.left_out == (wrong & ~inside).sum()
