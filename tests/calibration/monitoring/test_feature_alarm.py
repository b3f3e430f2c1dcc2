from __future__ import annotations

import json
import math

import numpy as np
import pytest

from calibrant.calibration.monitoring.alarms import Alarms, Watch, served_log_p
from calibrant.calibration.monitoring.drift_alarm import DriftSettings
from calibrant.calibration.monitoring.feature_alarm import FEWEST_ROWS, FeatureAlarm, FeatureWatch, NormalScores
from calibrant.calibration.monitoring.watched_features import WatchedFeatures

CLASSES = 5


class World:
    """Clustered features, half of them cut at 0, and a classifier that does not see all of the space."""

    def __init__(self, width: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.means = 2 * self.rng.normal(size=(CLASSES, width))
        self.weights = self.rng.normal(size=(min(CLASSES, width), width))
        self.weights -= self.weights.mean(axis=0)

    def rows(self, n: int) -> np.ndarray:
        x = self.means[self.rng.integers(0, CLASSES, n)] + self.rng.normal(size=(n, self.means.shape[1]))
        x[:, ::2] = np.maximum(x[:, ::2], 0)
        return x.astype(np.float32)

    def unseen(self, length: float) -> np.ndarray:
        """Moves no logit."""
        hidden = np.linalg.svd(self.weights)[2][len(self.weights) - 1 :]
        vector = self.rng.normal(size=len(hidden)) @ hidden
        return np.asarray(length * vector / np.linalg.norm(vector), np.float32)

    def spread(self) -> float:
        x = self.rows(1000)
        return float(np.linalg.norm(x - x.mean(axis=0), axis=1).mean())

    def watched(self, *, given: bool) -> WatchedFeatures:
        return WatchedFeatures.of(self.rows(4000) if given else None, self.means.shape[1], seed=3)


@pytest.mark.parametrize("given", [True, False], ids=["given", "own"])
@pytest.mark.parametrize("width", [2, 12, 200])
def test_calm_streams_raise_no_alarm(width: int, given: bool) -> None:
    """Promised is at most 1 in 1,000 streams of 100,000 rows, were what is normal known exactly."""
    for seed in range(4):
        world = World(width, seed)
        watched = world.watched(given=given)
        alarm = FeatureAlarm(watched.watch)
        assert not any(alarm.add(watched.directions.scores(world.rows(1000))) for _ in range(20)), seed
        assert alarm.rows == 20_000
        assert math.isfinite(alarm.log_evidence)


@pytest.mark.parametrize("given", [True, False], ids=["given", "own"])
@pytest.mark.parametrize("width", [2, 12, 200])
def test_half_of_the_rows_moved_where_the_classifier_does_not_look(width: int, given: bool) -> None:
    world = World(width, 11)
    watched, moved = world.watched(given=given), world.unseen(0.7 * world.spread())
    alarms = Alarms(len(world.weights), Watch(features=watched.watch))
    for turned in (False, True):
        for _ in range(60):
            x = world.rows(50)
            before = served_log_p(x @ world.weights.T)
            if turned:
                x[world.rng.random(50) < 0.5] += moved
            log_p = served_log_p(x @ world.weights.T)
            np.testing.assert_allclose(log_p, before, atol=1e-3)
            assert alarms.answered(log_p) == (False, False)
            alarms.featured(watched.directions.scores(x))
    found = alarms.states()["features"]
    assert found.on
    assert found.raised_at is not None
    assert 3000 < found.raised_at < 5000


def test_alpha_is_shared_out_and_the_threshold_is_that_of_one_variable() -> None:
    alarm = FeatureAlarm(FeatureWatch(scores=4), DriftSettings(alpha=0.01))
    assert alarm.log_threshold == pytest.approx(np.log(100_000 / 50 / (0.01 / 5)))
    rng = np.random.default_rng(0)
    alarm.add(rng.normal(size=(3000, 4)).astype(np.float32))
    assert [a.log_threshold for a in alarm._alarms] == [pytest.approx(alarm.log_threshold)] * 5


def test_the_first_rows_are_what_is_normal_however_they_come() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5000, 4)).astype(np.float32)
    scores[4000:, 1] += 2
    one, other = FeatureAlarm(FeatureWatch(4)), FeatureAlarm(FeatureWatch(4))
    one.add(scores)
    for part in np.split(scores, np.sort(rng.choice(5000, 300, replace=False))):
        other.add(part)
    assert one.needs == 2000
    assert one.normal is not None
    assert one.normal.rows == 2000
    assert one.fired_at is not None
    assert (one.rows, one.fired_at, one.raised_at, one.log_evidence) == (
        other.rows, other.fired_at, other.raised_at, other.log_evidence,
    )  # fmt: skip


def test_rows_without_scores_are_left_out_and_those_of_another_start_too() -> None:
    alarm = FeatureAlarm(FeatureWatch(3))
    scores = np.zeros((100, 3), np.float32)
    scores[:50] = np.nan
    alarm.add(scores)
    assert alarm.rows == 50
    assert not alarm.add(np.zeros((100, 7), np.float32))
    assert alarm.rows == 50


def test_what_is_normal_by_hand() -> None:
    """s = 0 ... 999 and r constant: mean 499.5, and T^2 of s = 0 is (499.5 / sd)^2; bins at the quantiles."""
    scores = np.column_stack([np.arange(1000), np.full(1000, 3)]).astype(np.float32)
    normal = NormalScores.of(scores)
    sd = np.sqrt((1000**2 - 1) / 12)
    assert normal.variables(scores[:1])[0].tolist() == pytest.approx([0.0, 3.0, (499.5 / sd) ** 2])
    assert normal.counts[0].tolist() == [20, 30, 50, 150, 250, 250, 150, 50, 30, 20]
    assert normal.counts[1].tolist() == [0, 1000]
    again = NormalScores.from_dict(json.loads(json.dumps(normal.to_dict())))
    for got, wanted in zip(again.categories(scores), normal.categories(scores), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert again.to_dict() == normal.to_dict()


def test_a_watch_comes_back_with_what_is_normal() -> None:
    rng = np.random.default_rng(0)
    given = Watch(features=FeatureWatch(3, NormalScores.of(rng.normal(size=(FEWEST_ROWS, 3)))))
    got = Watch.from_dict(json.loads(json.dumps(given.to_dict())))
    assert got.to_dict() == given.to_dict()
    assert Watch.from_dict({**Watch().to_dict(), "features": None}).features is None
    older = Watch().to_dict()
    older.pop("features")
    assert Watch.from_dict(older).features is None
