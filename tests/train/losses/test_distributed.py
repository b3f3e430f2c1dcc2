"""Two gloo processes with half of each batch equal one process with all of it, for every loss."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

WORKER = Path(__file__).with_name("ddp_worker.py")
ROOT = Path(__file__).resolve().parents[3]


def load_worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ddp_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    folder = tmp_path_factory.mktemp("ddp")
    env = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), "2", str(folder / "meet"), str(folder / f"{rank}.pt")],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    one = load_worker().everything(0, 1)
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 0, errors
    return one, [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def variants() -> list[str]:
    return list(load_worker().VARIANTS)


@pytest.mark.parametrize("dtype", ["torch.float64", "torch.float32"])
@pytest.mark.parametrize("variant", variants())
def test_two_processes_equal_one(
    variant: str, dtype: str, results: tuple[dict[str, Tensor], list[dict[str, Tensor]]]
) -> None:
    """Loss of each step, gradient of the first, weights and statistics after the last, ragged, one."""
    one, two = results
    keys = [k for k in one if k.startswith(f"{variant}/{dtype}/")]
    assert len(keys) >= 5
    tolerance = 1e-12 if dtype == "torch.float64" else 1e-6
    for k in keys:
        for rank in range(2):
            torch.testing.assert_close(
                two[rank][k], one[k], rtol=tolerance, atol=tolerance, msg=lambda m, k=k: f"{k}: {m}"
            )
        assert torch.equal(two[0][k], two[1][k]), f"{k} differs between ranks"


def test_gathering_is_what_makes_them_equal(results: tuple[dict[str, Tensor], list[dict[str, Tensor]]]) -> None:
    """The comparison can fail: the loss of half a batch is another number."""
    one, _ = results
    worker = load_worker()
    half = worker.run("fedlas-ls", torch.float64, 0, 1)["value"]
    assert torch.equal(half, one["fedlas-ls/torch.float64/value"])
    worker.ROWS = 4
    assert (worker.run("fedlas-ls", torch.float64, 0, 1)["value"] - half).abs().max() > 1e-3
