"""The queue by hand, and against what queueing theory knows exactly."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.serve.engine.batch_curve import OVERHEAD, BatchCurve, BatchPoint
from calibrant.serve.planning.simulator import Besides, Worker, answered, simulate


def worker(*service: float) -> Worker:
    return Worker(np.array(service))


def test_five_requests_by_hand() -> None:
    """1 s for a row, 1.5 for two, no more than two: the first alone 0-1; the two that came meanwhile 1-2.5; the next
    one that waits with the last 2.5-4."""
    found = answered(worker(1.0, 1.5), np.array([0.0, 0.2, 0.4, 0.6, 2.5]))
    np.testing.assert_allclose(found.latencies, [1.0, 2.3, 2.1, 3.4, 1.5])
    assert found.busy == 1.0
    assert found.rows == 5 / 3


def test_a_queue_that_is_empty_costs_the_service_alone() -> None:
    found = answered(worker(0.1, 0.15), np.arange(10.0))
    np.testing.assert_allclose(found.latencies, 0.1)
    assert found.busy == pytest.approx(1.0 / 9.1)


def test_who_finds_the_server_idle_waits_for_it_to_wake() -> None:
    """It wakes for .3 s: who comes meanwhile joins the first run; who comes while it runs waits for its end alone."""
    found = answered(Worker(np.array([1.0, 1.5]), wake=0.3), np.array([0.0, 0.2, 1.0, 5.0]))
    np.testing.assert_allclose(found.latencies, [1.8, 1.6, 1.8, 1.3])
    assert found.rows == 4 / 3


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_without_batches_the_mean_wait_is_that_of_pollaczek_and_khinchine(load: float) -> None:
    """M/D/1: load S / (2 (1 - load)); the simulated mean of 200,000 correlated waits is within 6 % of it."""
    found = simulate(worker(0.01), load / 0.01, requests=200_000)
    wait = found.latencies.mean() - 0.01
    assert wait == pytest.approx(load * 0.01 / (2 * (1 - load)), rel=0.06)
    assert found.busy == pytest.approx(load, rel=0.02)


def test_batches_carry_more_than_rows_one_by_one() -> None:
    alone, together = worker(0.01), worker(0.01, 0.011, 0.012, 0.013)
    assert together.capacity == pytest.approx(4 / 0.013)
    rate = 1.5 * alone.capacity
    assert simulate(together, rate).percentile(99) < 0.04
    assert simulate(alone, rate).percentile(50) > 1.0


def test_the_curve_goes_straight_between_its_points_and_on_behind_them() -> None:
    curve = BatchCurve((BatchPoint(1, 0.010), BatchPoint(4, 0.016)))
    got = Worker.of(curve, Besides(0.001), cap=8).service - OVERHEAD
    np.testing.assert_allclose(got, [0.011, 0.014, 0.017, 0.020, 0.025, 0.030, 0.035, 0.040])
