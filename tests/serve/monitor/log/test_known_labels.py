from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrant.serve.monitor.log import known_labels
from calibrant.serve.monitor.log.known_labels import KnownLabels


class _Full:
    """A file on a disk that takes so many writes, and then half of one and no more."""

    def __init__(self, room: int, **how: Any) -> None:
        self._room, self._file = room, tempfile.TemporaryFile(**how)  # noqa: SIM115
        self.seek, self.read, self.truncate, self.close = (
            self._file.seek, self._file.read, self._file.truncate, self._file.close
        )  # fmt: skip

    def write(self, data: bytes) -> int:
        self._room -= 1
        if self._room < -1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(data if self._room >= 0 else data[:6])


@pytest.mark.parametrize("room", [None, 1000, 0])
def test_it_says_what_a_dict_would_say(tmp_path: Path, room: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of labels given, given anew and taken back, in some dozens of tables; also where the disk is full."""
    monkeypatch.setattr(known_labels, "_SLOTS", 256)
    monkeypatch.setattr(known_labels, "_READ", 4)
    if room is not None:
        full = SimpleNamespace(TemporaryFile=lambda **how: _Full(room, **how))
        monkeypatch.setattr(known_labels, "tempfile", full)
    rng, known, expected = np.random.default_rng(0), KnownLabels(tmp_path), dict[str, int]()
    for _ in range(400):
        given = {f"row {k}": int(rng.integers(12)) for k in rng.integers(0, 6000, 20)}
        known.update(given)
        expected |= given
        for k in rng.integers(0, 6000, 2):
            known.discard(f"row {k}")
            expected.pop(f"row {k}", None)
        assert len(known) == len(expected)
    assert {f"row {k}": known.get(f"row {k}") for k in range(6000)} == {
        f"row {k}": expected.get(f"row {k}") for k in range(6000)
    }
    assert "row of another" not in known
    assert list(tmp_path.iterdir()) == []  # the files have no names


def test_labels_leave_nothing_in_memory(tmp_path: Path) -> None:
    known = KnownLabels(tmp_path)
    for start in range(0, 70_000, 500):
        known.update({f"{start + k}": k % 3 for k in range(500)})
    assert len(known) == 70_000
    assert known.get("69999") == 499 % 3
    assert len(known._filled) == 3
    assert known._held == {}


def test_without_a_folder_they_lie_where_temporary_files_do() -> None:
    known = KnownLabels()
    known.update({"a": 2})
    assert (known.get("a"), known.get("b")) == (2, None)
