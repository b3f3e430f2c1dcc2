"""The bench in front of a million predictions: memory is held to its bar.

The bars on times are the bench's own, for a machine that has nothing else to do; here the figures are printed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_predictions_fit_into_350_megabytes(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api")
    pytest.importorskip("psutil")
    if not any(map(shutil.which, ("chromium", "google-chrome"))):
        pytest.skip("no Chromium on this machine")
    figures = tmp_path / "figures.json"
    bench = [str(ROOT / "bench" / "dashboard.py"), "--rows", "1000000", "--memory", "--json", str(figures)]
    done = subprocess.run([sys.executable, *bench], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout)  # noqa: T201
    found = json.loads(figures.read_text())
    assert found["server memory (MB)"] <= 350
    assert found["server memory with rows (MB)"] <= 350
