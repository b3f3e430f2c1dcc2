"""From a rate to machines."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.errors import ConfigError
from calibrant.serve.planning.plan import FULLEST, Demand, highest_rate, plan
from calibrant.serve.planning.simulator import Worker, simulate

WORKER = Worker(np.array([0.010]))  # 100 requests a second at most


def test_a_lax_latency_is_bounded_by_the_capacity_and_a_strict_one_by_the_queue() -> None:
    assert highest_rate(WORKER, 10.0) == pytest.approx(FULLEST * 100)
    strict = highest_rate(WORKER, 0.030)
    assert strict < 80
    assert simulate(WORKER, strict).percentile(99) <= 0.030
    assert simulate(WORKER, 1.05 * strict).percentile(99) > 0.030


def test_machines_carry_the_peak_with_the_spare_ones_gone_and_all_are_paid() -> None:
    """1,000 a second, twice that at the peak, 95 a worker: 22 workers, 6 machines of 4, 8 with two to spare."""
    found = plan(WORKER, Demand(rate=1000, p99=10.0, peak=2.0, cores=4, spare=2, price=0.5))
    assert (found.workers, found.machines) == (24, 8)
    assert found.load == pytest.approx(2000 / 24 / 100)
    assert found.cost_day == pytest.approx(24 * 8 * 0.5)
    assert found.cost_million == pytest.approx(96 / 86.4)


def test_what_no_number_of_machines_can_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="one request alone takes 10 ms"):
        highest_rate(WORKER, 0.009)
    with pytest.raises(ConfigError, match="one request alone takes 12 ms"):
        highest_rate(Worker(np.array([0.010]), wake=0.002), 0.011)
