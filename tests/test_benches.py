"""Each bench starts as its first lines say: by its own file, from the project's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path.name for path in (ROOT / "bench").glob("*.py") if "argparse.ArgumentParser(" in path.read_text())


@pytest.mark.slow  # half a minute together
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_says_what_it_takes(name: str) -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, f"bench/{name}", "--help"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-600:]
    assert "usage:" in done.stdout


def test_there_are_benches() -> None:
    assert len(SCRIPTS) > 30
