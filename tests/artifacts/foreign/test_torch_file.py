"""What torch.save wrote, read without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.foreign.torch_file import read_torch
from calibrant.errors import DataError, FormatError

torch = pytest.importorskip("torch")

Z = torch.arange(12.0).reshape(4, 3)
Y = torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    "block",
    [
        {"scores": Z, "labels": Y, "epoch": torch.tensor(3), "lr": 0.1},
        (Z, Y),
        [Z, Y],
        [(Z[:2], Y[:2]), (Z[2:], Y[2:])],
        {"scores": [Z[:2], Z[2:]], "labels": [Y[:2], Y[2:]]},
        {"scores": Z.requires_grad_(), "labels": Y},
        {"scores": Z.bfloat16(), "labels": Y},
    ],
)
def test_tensors_of_any_arrangement_are_the_same_columns(tmp_path: Path, block: Any) -> None:
    torch.save(block, tmp_path / "p.pt")
    found = read_torch(tmp_path / "p.pt").values
    np.testing.assert_array_equal(found["scores"], np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(found["labels"], [0, 1, 2, 0])


def test_chunks_of_one_tensor_are_joined(tmp_path: Path) -> None:
    torch.save([Z.detach(), Z.detach(), Z.detach()], tmp_path / "p.pt")
    assert read_torch(tmp_path / "p.pt").values["scores"].shape == (12, 3)


def test_code_is_not_loaded(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    torch.save({"logits": Z.detach().numpy()}, tmp_path / "numpy.pt")
    for name in ("module.pt", "numpy.pt"):
        with pytest.raises(FormatError, match="more than tensors.*from_numpy") as caught:
            read_torch(tmp_path / name)
        assert "\n" not in str(caught.value)
    torch.save(3, tmp_path / "number.pt")
    with pytest.raises(DataError, match="no tensors"):
        read_torch(tmp_path / "number.pt")


def test_tensors_one_table_deep_are_found(tmp_path: Path) -> None:
    inner = {"scores": Z.detach(), "labels": Y}
    torch.save({"epoch": 3, "config": {"lr": 0.1}, "results": inner}, tmp_path / "p.pt")
    assert list(read_torch(tmp_path / "p.pt").values) == ["scores", "labels"]
    torch.save({"val": inner, "test": inner}, tmp_path / "two.pt")
    with pytest.raises(DataError, match="several tables: val, test"):
        read_torch(tmp_path / "two.pt")
