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

from calibrant.artifacts.predictions import read_predictions
from calibrant.train.config import train_config
from calibrant.train.engine import fit
from calibrant.train.losses import LOSSES

ROOT = Path(__file__).resolve().parents[2]
RUNS = [*(name for name, cls in LOSSES.items() if cls.trains_classifier), "ce accumulated", "ce synced"]
# A ResNet normalises by the batch in every layer, which magnifies the last digits of 20 of them in a row.
TOLERANCE = {"ce synced": 1e-5}


def _table(image_folder: Path, out: Path, run: str) -> dict[str, Any]:
    # 31 images in batches of 8: the last one has 7 and is padded on the second rank.
    synced = run == "ce synced"
    return {
        "out": str(out), "data": {"path": str(image_folder)}, "loss": run.partition(" ")[0],
        "model": {"name": "test_resnet" if synced else "test_vit", "image_size": 32},
        "optimizer": {"name": "momentum", "lr": 0.01, "clip_norm": 1.0}, "schedule": {"epochs": 2},
        "engine": {"batch_size": 8, "accumulate": 2 if run == "ce accumulated" else 1, "drop_last": False,
                   "ema_decay": 0.5, "tensorboard": False, "device": "cpu", "sync_bn": synced},
    }  # fmt: skip


@pytest.mark.slow
def test_two_processes_give_the_run_of_one(image_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "runs.json"
    tables = [_table(image_folder, tmp_path / "two" / run, run) for run in RUNS]
    # Each process mixes its own rows, so this one equals no single process; the two must not wait for each other.
    mixed = {"mixup": 0.4, "superpixel_mix": 2, "superpixels": [4, 8], "mix_prob": 0.5, "transplant": 0.3}
    tables.append({**_table(image_folder, tmp_path / "two" / "mixed", "vace"), "augment": mixed})
    file.write_text(json.dumps(tables))
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
    assert len((tmp_path / "two" / "mixed" / "metrics.jsonl").read_text().splitlines()) == 2
    for run in RUNS:
        one = fit(train_config(_table(image_folder, tmp_path / "one" / run, run)))
        two = tmp_path / "two" / run
        a, b = (load_file(out / "checkpoint.safetensors") for out in (one, two))
        assert a.keys() == b.keys()
        tolerance = TOLERANCE.get(run, 1e-6)
        for name, value in a.items():  # weights, averaged weights, momentum, the loss's state
            torch.testing.assert_close(
                b[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, at=f"{run} {name}": f"{at}: {m}"
            )
        losses = [
            [json.loads(line)["train"]["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
            for out in (one, two)
        ]
        np.testing.assert_allclose(*losses, rtol=tolerance)
        p, q = (read_predictions(out / "predictions" / "val.parquet") for out in (one, two))
        assert p.ids == q.ids
        np.testing.assert_allclose(p.logits, q.logits, rtol=10 * tolerance, atol=10 * tolerance)
