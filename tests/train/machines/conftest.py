"""The run of two processes of which none is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.machines.tiny import write_config

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def undisturbed(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    config = write_config(folder / "run.toml", image_folder, folder / "run")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         "-m", "calibrant", "train", str(config)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("best epoch") == 1  # of two processes one speaks
    return folder / "run"
