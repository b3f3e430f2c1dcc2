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


def test_shares_elsewhere_leave_the_fold_out():
    labels = np.array([0, 0, 0, 1])
    for chosen, shares in shares_elsewhere(labels, 2, folds=2):
        counts = np.bincount(labels[~chosen], minlength=2) + 0.5
        assert shares == pytest.approx(counts / counts.sum())
