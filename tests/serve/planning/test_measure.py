"""What a plan is made of, measured on a real server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibrant.serve.planning.measure import measured_curve, measured_front, processor_seconds


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processor time from Linux's /proc")
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_request_costs_the_server_more_than_nothing_and_less_than_a_hundredth_of_a_second(model_file: Path) -> None:
    cores = os.sched_getaffinity(0)
    session, curve = measured_curve(model_file, seconds=0.2)
    front = measured_front(session, curve, seconds=0.5)
    assert 1e-5 < front < 1e-2
    assert os.sched_getaffinity(0) == cores


def test_the_time_of_a_process_is_counted_in_seconds() -> None:
    before = processor_seconds(os.getpid())
    while os.times().user + os.times().system < before + 0.2:
        sum(range(10_000))
    assert processor_seconds(os.getpid()) - before == pytest.approx(0.2, abs=0.15)
