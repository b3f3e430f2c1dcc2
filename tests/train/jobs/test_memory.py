"""The peak of a process's memory."""

from __future__ import annotations

import sys

import pytest

from calibrant.train.jobs.memory import forget_peak, peak_mb


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells")
def test_a_peak_is_told_and_forgotten() -> None:
    forget_peak()
    before = peak_mb() or 0.0
    held = bytearray(b"x") * (300 << 20)
    high = peak_mb() or 0.0
    del held
    forget_peak()
    after = peak_mb() or 0.0
    assert 0 < before < high - 250
    assert 0 < after < high - 200
