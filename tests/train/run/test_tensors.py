"""A disk that is full is said in the system's words, not in the library's."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors import SafetensorError

from calibrant.train.run.tensors import write_tensors


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    def full(*given: object, **named: object) -> None:  # what version 0.8 says
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(3)})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "x.safetensors"))
    assert not list(tmp_path.iterdir())


def test_the_header_holds_the_text_or_nothing(tmp_path: Path) -> None:
    from safetensors import safe_open

    for text, header in (("{}", {"calibrant": "{}"}), (None, None)):
        write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(3)}, text)
        with safe_open(tmp_path / "x.safetensors", "pt") as file:
            assert file.metadata() == header
