"""Freed memory goes back, whatever still stands between the holes."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import numpy as np, psutil
from calibrant.dashboard.numbers.memory import give_back
rows = [np.ones(100_000, np.uint8) for _ in range(1000)]
kept = rows[::10]
del rows
before = psutil.Process().memory_info().rss
give_back()
print((before - psutil.Process().memory_info().rss) >> 20, len(kept))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_holes_between_what_is_kept_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    given, kept = map(int, done.stdout.split())
    assert kept == 100
    assert given > 50  # of 90 MB
