from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "losses"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "golden" / "losses"  # has the large files too


class Golden:
    """One .npz of arrays and its `meta`."""

    def __init__(self, name: str) -> None:
        path = GOLDEN / f"{name}.npz"
        if not path.is_file() and not (path := SHARED / f"{name}.npz").is_file():
            pytest.skip(f"{name}.npz is not carried in the repository")
        self.arrays = np.load(path)
        self.meta: dict[str, Any] = json.loads(str(self.arrays["meta"]))

    def __getitem__(self, key: str) -> Any:
        return self.arrays[key]

    def tensor(self, key: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.tensor(self.arrays[key]).to(dtype)

    def labels(self, key: str) -> torch.Tensor:
        return torch.tensor(self.arrays[key]).long()


def _compare(value: torch.Tensor, grad: torch.Tensor, golden: Golden, i: int, *, key: str = "") -> None:
    """Value and gradient of golden case i. Tolerances: the golden gradients are stored as float32."""
    double = value.dtype == torch.float64
    np.testing.assert_allclose(value.item(), golden[f"{i}.{key}loss"], rtol=1e-6 if double else 1e-4, atol=1e-30)
    np.testing.assert_allclose(grad.numpy(), golden[f"{i}.{key}grad"], rtol=0, atol=1e-6 if double else 1e-4)


def _authors(name: str, dtype: torch.dtype) -> None:
    """Every case of the authors' code that is no quirk of it."""
    from calibrant.train.losses import create_loss

    g = Golden(name)
    reduction = "sum" if "sum" in g.meta["params"].get("reduction", "") else "mean"
    seen = 0
    for i, case in enumerate(g.meta["cases"]):
        if "QUIRK" in case["kind"]:
            continue
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        value = create_loss(name, num_classes=z.shape[1], reduction=reduction)(z, g.labels(f"{i}.targets"))
        value.backward()
        assert z.grad is not None
        _compare(value.detach(), z.grad, g, i)
        seen += 1
    assert seen >= 5


def _derived(key: str, make: Callable[[int, Golden, int], Any], dtype: torch.dtype) -> None:
    """Every case of the formulas that were worked out apart from this code."""
    g = Golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        value = make(case["C"], g, i)(z, g.labels(f"{i}.targets"))
        value.backward()
        assert z.grad is not None
        _compare(value.detach(), z.grad, g, i, key=f"{key}.")


@pytest.fixture
def compare() -> Callable[..., None]:
    return _compare


@pytest.fixture
def authors() -> Callable[..., None]:
    return _authors


@pytest.fixture
def derived() -> Callable[..., None]:
    return _derived


@pytest.fixture
def golden() -> Callable[[str], Golden]:
    return Golden


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
