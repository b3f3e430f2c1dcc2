"""A run of a second that is slow enough to be killed in the middle, and what two such runs must have in common."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from calibrant.artifacts.predictions import read_predictions

EPOCHS = 12
# 31 images in batches of 8: the last one has 7 and is padded on the second rank.
TOML = """
out = "{out}"
[data]
path = "{data}"
[model]
name = "test_vit"
image_size = 32
[schedule]
epochs = {epochs}
[optimizer]
name = "momentum"
lr = 0.01
[engine]
batch_size = 8
drop_last = false
ema_decay = 0.5
top_k = 2
tensorboard = false
device = "cpu"
"""


def write_config(file: Path, data: Path, out: Path, epochs: int = EPOCHS) -> Path:
    file.write_text(TOML.format(data=data, out=out, epochs=epochs))
    return file


def epochs_of(run: Path) -> list[int]:
    file = run / "metrics.jsonl"
    return [json.loads(line)["epoch"] for line in file.read_text().splitlines()] if file.is_file() else []


def wait_for_epoch(run: Path, epoch: int, alive: Callable[[], bool], seconds: float = 120.0) -> None:
    """Until that epoch is written down."""
    end = time.monotonic() + seconds
    while max(epochs_of(run), default=0) < epoch:
        assert alive(), "ended early"
        assert time.monotonic() < end, f"epoch {epoch} was not reached in {seconds:g} s"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    """Empty where it has ended in the meantime."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def started(pid: int) -> int:
    """When, in ticks of the machine's clock; 0 where it has ended in the meantime."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def kill(pid: int) -> float:
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def assert_same_run(one: Path, other: Path, epochs: int = EPOCHS, tolerance: float = 1e-6) -> None:
    """Weights, averaged weights, momentum and the loss's state; each epoch once; nothing half written."""
    a, b = (load_file(run / "checkpoint.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, at=name: f"{at}: {m}")
    assert epochs_of(one) == epochs_of(other) == list(range(1, epochs + 1))
    losses = [
        [json.loads(line)["train"]["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (one, other)
    ]
    np.testing.assert_allclose(*losses, rtol=tolerance)
    for split in ("val", "test"):
        p, q = (read_predictions(run / "predictions" / f"{split}.parquet") for run in (one, other))
        assert p.ids == q.ids
        np.testing.assert_allclose(p.logits, q.logits, rtol=10 * tolerance, atol=10 * tolerance)
    assert {f.name for f in (one / "epochs").iterdir()} == {f.name for f in (other / "epochs").iterdir()}
    assert [str(p) for p in other.rglob(".*")] == []
