"""Two processes with half of each batch give the run of one process with all of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from calibrant.predictions import read_predictions
from calibrant.train.config import train_config
from calibrant.train.engine import fit

ROOT = Path(__file__).resolve().parents[2]
# Losses with batch statistics, pairs of rows, per-sample history or parameters of their own, besides plain ones.
LOSSES = ("ce", "vace", "fedlas-mbls", "crl", "mmce")


def _table(image_folder: Path, out: Path, loss: str) -> dict[str, Any]:
    # 31 images in batches of 8: the last one has 7 and is padded on the second rank. No batch norm: its statistics
    # are each process's own.
    return {
        "out": str(out), "data": {"path": str(image_folder)}, "model": {"name": "test_vit", "image_size": 32},
        "loss": loss, "optimizer": {"name": "momentum", "lr": 0.01, "clip_norm": 1.0}, "schedule": {"epochs": 2},
        "engine": {"batch_size": 8, "accumulate": 2 if loss == "ce" else 1, "drop_last": False, "ema_decay": 0.5,
                   "tensorboard": False, "device": "cpu"},
    }  # fmt: skip


@pytest.mark.slow
def test_two_processes_give_the_run_of_one(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([_table(image_folder, tmp_path / "two" / loss, loss) for loss in LOSSES]))
    worker = Path(__file__).with_name("ddp_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = subprocess.run(
        [*command, "--master-port", port, str(worker), str(file)],
        capture_output=True, text=True, cwd=ROOT, timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for loss in LOSSES:
        one = fit(train_config(_table(image_folder, tmp_path / "one" / loss, loss)))
        two = tmp_path / "two" / loss
        a, b = (load_file(run / "checkpoint.safetensors") for run in (one, two))
        assert a.keys() == b.keys()
        for name, value in a.items():
            torch.testing.assert_close(
                b[name], value, rtol=2e-5, atol=2e-6, msg=lambda m, at=f"{loss} {name}": f"{at}: {m}"
            )
        p, q = (read_predictions(run / "predictions" / "val.parquet") for run in (one, two))
        assert p.ids == q.ids
        np.testing.assert_allclose(p.logits, q.logits, rtol=1e-4, atol=1e-5)
