from dataclasses import replace

import numpy as np
import pytest

from calibrant.calibration.calibrators import fit
from calibrant.calibration.cross_fit import cross_fitted, shares_elsewhere


def test_each_row_is_judged_by_a_map_of_the_other_folds():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    z = 3 * (np.eye(3)[y] + rng.normal(size=(300, 3)))
    found = cross_fitted("temperature", z, y, folds=3)
    fold = np.random.default_rng(0).permutation(300) % 3
    other = fit("temperature", z[fold != 1], y[fold != 1])
    assert np.allclose(found[fold == 1], other.logits(z[fold == 1]))


def test_under_auto_the_folds_take_the_members_that_were_chosen_on_all_rows():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 200)
    z = 3 * (rng.normal(size=(200, 5)) + 2 * np.eye(5)[y])
    chosen = fit("auto", z, y)
    members, uniform = chosen.fit["auto"]["members"], chosen.fit["auto"]["uniform"]
    assert chosen.method == "mixture"
    found = cross_fitted("auto", z, y, folds=3, chosen=chosen)
    fold = np.random.default_rng(0).permutation(200) % 3
    p = uniform / 5 * np.ones((int((fold == 1).sum()), 5))
    for m in members:
        one = fit(m["method"], z[fold != 1], y[fold != 1], **m["options"])
        p += (1 - uniform) * m["share"] * one.probabilities(z[fold == 1])
    p **= 1 / chosen.fit["auto"]["temperature"]
    q = np.exp(found[fold == 1])
    np.testing.assert_allclose(q / q.sum(1, keepdims=True), p / p.sum(1, keepdims=True), atol=1e-9)


def test_a_mixture_of_a_file_that_does_not_say_its_members_is_chosen_anew():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 200)
    z = 3 * (rng.normal(size=(200, 5)) + 2 * np.eye(5)[y])
    chosen = fit("auto", z, y)
    silent = replace(chosen, fit={})
    assert np.isfinite(cross_fitted(chosen.method, z, y, folds=2, chosen=silent)).all()


def test_shares_elsewhere_leave_the_fold_out():
    labels = np.array([0, 0, 0, 1])
    for chosen, shares in shares_elsewhere(labels, 2, folds=2):
        counts = np.bincount(labels[~chosen], minlength=2) + 0.5
        assert shares == pytest.approx(counts / counts.sum())


def test_what_single_folds_have_to_note_is_not_said(caplog):
    """All rows are right, so no fold tells T: the fit on all rows says so, once."""
    z = np.random.default_rng(0).normal(size=(600, 3))
    y = z.argmax(axis=1)
    cross_fitted("temperature", z, y)
    assert caplog.messages == []
    assert "hardly tell T" in fit("temperature", z, y).fit["note"]
    assert len(caplog.messages) == 1
