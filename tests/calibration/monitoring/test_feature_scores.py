from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.monitoring.feature_scores import AXES, Directions


def test_scores_by_hand() -> None:
    """x - mu = (3, 4, 12); along the first axis 3, and 16 + 144 outside."""
    directions = Directions(np.array([1.0, 0, 0], np.float32), np.array([[1.0, 0, 0]], np.float32))
    got = directions.scores(np.array([[4.0, 4, 12]], np.float32))
    assert got.tolist()[0] == pytest.approx([3.0, np.log(160.0)])


def test_the_axes_of_a_baseline_are_its_leading_components() -> None:
    rng = np.random.default_rng(0)
    scale = np.array([*range(30, 30 - 2 * AXES, -2), *[0.5] * 92], np.float64)
    turn = np.linalg.qr(rng.normal(size=(100, 100)))[0]
    features = (rng.normal(size=(5000, 100)) * scale + 3) @ turn
    found = Directions.of(features.astype(np.float32), seed=1)
    assert found.axes @ found.axes.T == pytest.approx(np.eye(AXES), abs=1e-5)
    # What the leading components of this sample leave outside, nothing leaves less.
    own = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)[2][:AXES]
    assert np.linalg.norm(found.axes @ own.T) ** 2 == pytest.approx(AXES, abs=0.01)
    assert found.mean == pytest.approx(features.mean(axis=0), abs=1e-3)


def test_random_axes_are_the_same_in_every_process_and_others_for_another_file() -> None:
    first, again, other = (Directions.at_random(40, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.axes, again.axes)
    assert np.abs(first.axes - other.axes).max() > 0.1
    assert first.axes @ first.axes.T == pytest.approx(np.eye(AXES), abs=1e-5)
    assert first.mean.tolist() == [0.0] * 40


@pytest.mark.parametrize("width", [1, 2, AXES, AXES + 1])
def test_few_dimensions_have_as_many_axes(width: int) -> None:
    directions = Directions.at_random(width, 0)
    got = directions.scores(np.ones((3, width), np.float32))
    assert got.shape == (3, min(width, AXES) + 1) == (3, directions.scores_a_row)
    assert np.isfinite(got).all()


def test_what_is_no_number_has_no_scores() -> None:
    x = np.ones((4, 20), np.float32)
    x[1, 3], x[2, 5] = np.nan, np.inf
    got = Directions.at_random(20, 0).scores(x)
    assert np.isnan(got).all(axis=1).tolist() == [False, True, True, False]
    assert np.isfinite(Directions.at_random(20, 0).scores(np.zeros((1, 20), np.float32))).all()
