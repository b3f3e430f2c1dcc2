"""A temperature that grows with the distance of features: found where the truth has it, else hardly there."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit, metrics
from calibrant.calibration.cross_fit import cross_fitted
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, DataError

D, C = 12, 5
TRUTH = np.random.default_rng(0)
CENTRES, WEIGHT = TRUTH.normal(size=(C, D)), TRUTH.normal(size=(C, D))
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def drawn(rows: int, seed: int, *, far: float | None = None, linked: bool = True) -> Rows:
    """Features near one of five directions or (the share `far`) anywhere, where labels are nearly by lot if linked."""
    rng = np.random.default_rng(seed)
    near = rng.random(rows) >= (0.3 if far is None else far)
    middle = np.where(near[:, None], 3 * CENTRES[rng.integers(0, C, rows)], 0.0)
    x = middle + rng.normal(size=(rows, D)) * np.where(near, 0.5, 3.0)[:, None]
    z = x @ WEIGHT.T
    temperature = np.where(near | (not linked), 2.0, 8.0)[:, None]
    y = (softmax(z / temperature).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return z, y, x


def test_the_dependence_is_found_helps_most_far_out_and_the_order_stays() -> None:
    z, y, x = drawn(1000, 1)
    found, plain = fit("density-aware", z, y, features=x), fit("temperature", z, y)
    gains = []
    for far in (0.3, 0.9):
        fresh, truth, seen = drawn(5000, 2, far=far)
        q = found.probabilities(fresh, seen)
        gains.append(metrics.nll(plain.probabilities(fresh), truth) - metrics.nll(q, truth))
        np.testing.assert_array_equal(q.argmax(axis=1), fresh.argmax(axis=1))
    assert gains[0] > 0.05
    assert gains[1] > 1.3 * gains[0]


def test_without_a_link_or_with_few_rows_it_is_hardly_more_than_a_temperature() -> None:
    for seed in range(3):
        for rows, bound in ((50, 0.01), (1000, 0.003)):
            z, y, x = drawn(rows, seed, linked=False)
            fresh, truth, seen = drawn(4000, 10 + seed, linked=False)
            loss = metrics.nll(fit("density-aware", z, y, features=x).probabilities(fresh, seen), truth)
            assert loss < metrics.nll(fit("temperature", z, y, steady=True).probabilities(fresh), truth) + bound


def test_closer_rows_are_never_less_sure() -> None:
    """Surer far out: the slope stays at 0 and a plain temperature is what is left."""
    z, y, x = drawn(1000, 3)
    scores = np.where(np.linalg.norm(x, axis=1) > np.median(np.linalg.norm(x, axis=1)), 0.1, 3.0)[:, None]
    found = fit("density-aware", z * scores, y, features=x)
    assert found.parameters["slope"] >= 0.0


def test_a_row_that_is_a_centre_counts_its_distance_to_the_others() -> None:
    z, y, x = drawn(60, 4)
    found = fit("density-aware", z, y, features=x)
    (step,) = [s for s in found.steps() if hasattr(s, "distances")]
    assert len(step.centres) == 60
    own = step.distances(x)  # each of them is a centre, so that one of the five nearest is itself
    assert own.mean() < found.parameters["middle"]
    fresh = step.distances(drawn(4000, 5)[2])
    assert fresh.mean() == pytest.approx(found.parameters["middle"], abs=0.05)


def test_the_block_holds_so_many_centres_as_asked() -> None:
    z, y, x = drawn(300, 6)
    assert np.shape(fit("density-aware", z, y, features=x).parameters["centres"]) == (100, D)
    assert np.shape(fit("density-aware", z, y, features=x, centres=20).parameters["centres"]) == (20, D)
    with pytest.raises(ConfigError, match="centres is 3, expected 6 or more"):
        fit("density-aware", z, y, features=x, centres=3)


def test_rows_of_weight_zero_do_not_count() -> None:
    z, y, x = drawn(300, 7)
    w = np.r_[np.full(200, 0.5), np.zeros(100)]
    found = fit("density-aware", z, y, features=x, weights=w).parameters
    other = np.r_[np.ones(200), np.full(100, 50.0)][:, None]
    again = fit("density-aware", z * other, (y + (w == 0)) % C, features=x * other, weights=w).parameters
    assert again == found
    assert fit("density-aware", z, y, features=x).parameters["temperature"] != found["temperature"]


def test_it_goes_through_its_file_and_cross_fits() -> None:
    z, y, x = drawn(300, 8)
    found = fit("density-aware", z, y, features=x)
    again = Calibrator.from_json(found.to_json())
    np.testing.assert_array_equal(again.logits(z, x), found.logits(z, x))
    held_out = cross_fitted("density-aware", z, y, features=x)
    assert not np.array_equal(held_out, found.logits(z, x))
    assert metrics.nll(softmax(held_out), y) == pytest.approx(metrics.nll(found.probabilities(z, x), y), abs=0.03)


def test_rows_without_features_or_of_another_network_are_refused() -> None:
    z, y, x = drawn(100, 9)
    found = fit("density-aware", z, y, features=x)
    with pytest.raises(DataError, match="these rows hold none"):
        found.probabilities(z)
    with pytest.raises(DataError, match="features have 5 numbers a row, the calibrator reads 12"):
        found.logits(z, x[:, :5])
    with pytest.raises(DataError, match=r"shape \(50, 12\) for 100 rows"):
        found.logits(z, x[:50])
    with pytest.raises(DataError, match="not finite"):
        found.logits(z, np.where(x > 2, np.nan, x))
    with pytest.raises(DataError, match="these rows hold none"):
        fit("density-aware", z, y)
    with pytest.raises(DataError, match="8 rows are too few"):
        fit("density-aware", z[:8], y[:8], features=x[:8])


def test_features_that_never_change_leave_a_temperature() -> None:
    z, y, x = drawn(300, 10)
    found = fit("density-aware", z, y, features=np.ones_like(x))
    assert found.parameters["slope"] == 0.0
    assert np.isfinite(found.logits(z, x)).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spread": [0.0] * D}, '"spread" must be positive'),
        ({"centres": [[1.0, 2.0]]}, '"centres" has shape'),
        ({"centres": []}, '"centres" must be a list of points'),
        ({"nearest": 500}, '"nearest" is 500, expected 1 to'),
    ],
)
def test_a_file_that_is_no_such_map_is_refused(change: dict[str, object], said: str) -> None:
    z, y, x = drawn(100, 11)
    parameters = dict(fit("density-aware", z, y, features=x).parameters)
    with pytest.raises(ConfigError, match=said):
        Calibrator("density-aware", C, {**parameters, **change})


def test_no_member_of_a_mixture_and_no_map_under_groups_reads_features() -> None:
    z, y, x = drawn(100, 12)
    parameters = dict(fit("density-aware", z, y, features=x).parameters)
    member = {"method": "density-aware", "parameters": parameters}
    with pytest.raises(ConfigError, match="no member of a mixture"):
        Calibrator("mixture", C, {"weights": [1.0], "members": [member]})
    with pytest.raises(ConfigError, match="the common map of groups"):
        Calibrator("by-group", C, {"common": member, "scale": 1.0, "bias": [0.0] * C})
