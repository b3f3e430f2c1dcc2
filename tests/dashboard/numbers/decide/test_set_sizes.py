"""Prediction sets of a subject: a file's own, or some fitted on half of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.calibration.conformal.sets import fit_conformal
from calibrant.dashboard.folder.artifacts import CalibratorRef
from calibrant.dashboard.numbers.decide import set_sizes


def test_without_sets_of_its_own_half_of_the_rows_fit_some_and_the_others_judge(run) -> None:  # type: ignore[no-untyped-def]
    assert set_sizes.levels(run[2]) == set_sizes.LEVELS
    for level in set_sizes.LEVELS:
        found = set_sizes.set_sizes(run[2], level)
        assert found.fitted_rows == 2000
        assert found.count.sum() == 2000
        assert abs(found.covered.value - level) < 0.03
        assert 1 <= found.mean < 10


def test_sets_of_the_calibrator_are_taken_as_they_are(run, probabilities) -> None:  # type: ignore[no-untyped-def]
    probs, labels = probabilities
    own = fit_conformal(probs, labels, alpha=0.1)
    ref = run[2].through
    assert isinstance(ref, CalibratorRef)
    with_sets = replace(
        run[2], through=replace(ref, calibrator=replace(ref.calibrator, conformal={"0.1": own.to_dict()}))
    )
    set_sizes.set_sizes.cache_clear()  # told apart by files, which are the same here
    found = set_sizes.set_sizes(with_sets, 0.9)
    set_sizes.set_sizes.cache_clear()
    assert set_sizes.levels(with_sets) == (0.9,)
    assert found.fitted_rows is None
    members = own.contains(probs)
    members[np.arange(len(labels)), probs.argmax(axis=1)] = True
    assert found.count.tolist() == np.bincount(members.sum(axis=1), minlength=2).tolist()
    assert found.covered.value == members[np.arange(len(labels)), labels].mean()
