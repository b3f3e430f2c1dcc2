from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from calibrant.errors import FormatError
from calibrant.train.run.checkpoint import load_checkpoint, remove_leftovers, save_checkpoint


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    shared = torch.arange(12.0)
    state = {
        "a": {"weight": shared[:6], "same": shared[:6], "image": torch.randn(2, 3, 4, 5).contiguous(
            memory_format=torch.channels_last)},
        "state": {0: {"step": torch.tensor(3.0)}, 7: {"step": torch.tensor(4, dtype=torch.int64)}},
        "groups": [{"lr": 0.1 + 0.2, "betas": (0.9, 0.999), "foreach": None, "fused": False}],
        "best": math.inf, "worst": -math.inf, "name": "x",
    }  # fmt: skip
    save_checkpoint(tmp_path / "c.safetensors", state)
    found = load_checkpoint(tmp_path / "c.safetensors")
    assert found["best"] == math.inf
    assert found["worst"] == -math.inf
    assert found["groups"] == [{"lr": 0.1 + 0.2, "betas": [0.9, 0.999], "foreach": None, "fused": False}]
    assert list(found["state"]) == [0, 7]
    assert found["state"][7]["step"].dtype == torch.int64
    for name, value in state["a"].items():  # type: ignore[attr-defined]
        assert torch.equal(found["a"][name], value)


def test_what_json_and_tensors_cannot_hold_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="state.loss.f is a function"):
        save_checkpoint(tmp_path / "c.safetensors", {"loss": {"f": lambda: 0}})
    assert not list(tmp_path.iterdir())


def test_a_cut_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "c.safetensors"
    save_checkpoint(file, {"w": torch.zeros(100)})
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(FormatError, match="c.safetensors: damaged checkpoint"):
        load_checkpoint(file)
    file.write_bytes(b"short")
    with pytest.raises(FormatError, match="not a safetensors file"):
        load_checkpoint(file)


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.123.tmp.safetensors").write_bytes(b"part")
    (tmp_path / ".tmp97IDnT").write_bytes(b"part")  # as safetensors calls its own
    (tmp_path / "model.safetensors").write_bytes(b"whole")
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
