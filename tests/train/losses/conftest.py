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


@pytest.fixture
def golden() -> Callable[[str], Golden]:
    return Golden


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
