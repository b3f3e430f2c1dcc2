"""Batch norm over several processes: two of them with half of each batch equal one with all of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.synced_norm import sync_batch_norm

WORKER = Path(__file__).with_name("norm_worker.py")
ROOT = Path(__file__).resolve().parents[3]


def _worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("norm_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_two_processes_with_synced_norms_equal_one(tmp_path: Path) -> None:
    """Loss of each step, gradient of the first, weights, batch statistics and the loss's own, the last batch ragged."""
    env = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), "2", str(tmp_path / "meet"), str(tmp_path / f"{rank}.pt")],
            env=env, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    one: dict[str, Tensor] = _worker().everything(0, 1)
    for worker in workers:
        _, errors = worker.communicate(timeout=240)
        assert worker.returncode == 0, errors
    two = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert len(one) > 12 * 20
    for k, expected in one.items():
        # Norms by batches of eight magnify the last digits: in float32 up to 3e-6 after three steps, 1e-14 in float64.
        tolerance = 1e-12 if "float64" in k else 1e-5
        torch.testing.assert_close(two[0][k], expected, rtol=tolerance, atol=tolerance, msg=lambda m, k=k: f"{k}: {m}")
        assert torch.equal(two[0][k], two[1][k]), f"{k} differs between ranks"


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 5), (6, 4, 3, 5)])
def test_one_process_has_the_batch_norm_of_torch(shape: tuple[int, ...], momentum: float | None) -> None:
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    plain, synced = (kind(4, momentum=momentum, dtype=torch.float64) for _ in range(2))
    (norm,) = sync_batch_norm(nn.Sequential(synced))
    torch.manual_seed(0)
    for _ in range(3):
        x = torch.randn(*shape, dtype=torch.float64)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        weight = torch.randn_like(x)
        (plain(a) * weight).sum().backward()
        (norm(b) * weight).sum().backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(synced.state_dict()[key], value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain.weight.grad, synced.weight.grad, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain.eval()(x), synced.eval()(x), rtol=1e-12, atol=1e-12)


def test_padding_is_in_no_statistic() -> None:
    """Rows 0 to 3 are real: their output is that of a batch of four, whatever the others hold."""
    plain, (norm,) = nn.BatchNorm2d(3), sync_batch_norm(nn.Sequential(nn.BatchNorm2d(3)))
    x = torch.randn(6, 3, 4, 4)
    x[4:] = 1e3
    norm.real_rows = 4
    torch.testing.assert_close(norm(x)[:4], plain(x[:4]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.running_var, plain.running_var)


def test_names_state_and_evaluation_stay_as_they_were() -> None:
    model = build_model("test_efficientnet", 3, input_size=(32, 32)).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        before, keys = model(x)[0], list(model.state_dict())
        assert sync_batch_norm(model)
        assert torch.equal(model(x)[0], before)
    assert list(model.state_dict()) == keys


def test_networks_without_batch_norm_are_refused() -> None:
    with pytest.raises(ConfigError, match="VisionTransformer has no batch norm"):
        sync_batch_norm(build_model("test_vit", 3, input_size=(32, 32)).network)
    with pytest.raises(ConfigError, match="has a SyncBatchNorm, which cannot be synced"):
        sync_batch_norm(nn.Sequential(nn.SyncBatchNorm(3)))
