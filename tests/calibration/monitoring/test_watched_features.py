from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.monitoring.feature_alarm import FEWEST_ROWS
from calibrant.calibration.monitoring.watched_features import WatchedFeatures


@pytest.mark.parametrize(("rows", "known"), [(2 * FEWEST_ROWS - 1, False), (2 * FEWEST_ROWS, True)])
def test_half_of_the_rows_make_the_axes_and_half_say_what_is_normal(rows: int, known: bool) -> None:
    features = np.random.default_rng(0).normal(size=(rows, 20)).astype(np.float32)
    found = WatchedFeatures.of(features, 20, seed=1)
    assert (found.watch.normal is not None) == known
    if found.watch.normal is not None:
        assert found.watch.normal.rows == rows // 2
    assert found.watch.scores == found.directions.scores_a_row == 9


def test_more_dimensions_than_rows_do_not_make_new_rows_look_far_out() -> None:
    """Axes lie too near to the rows that they were fitted on; those rows must not be what is normal."""
    rng = np.random.default_rng(2)
    found = WatchedFeatures.of(rng.normal(size=(2000, 3000)).astype(np.float32), 3000, seed=1)
    assert found.watch.normal is not None
    fresh = found.directions.scores(rng.normal(size=(1000, 3000)).astype(np.float32))
    bins = found.watch.normal.categories(fresh)[-2]
    middle = found.watch.normal.edges[-2][len(found.watch.normal.edges[-2]) // 2]
    assert np.mean(fresh[:, -1] < middle) == pytest.approx(0.5, abs=0.08)
    assert np.mean(bins == bins.max()) < 0.06
