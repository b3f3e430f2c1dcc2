"""Writing files so that a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder that takes the place of `path` when the block ends without error.

    The file is synced before the rename and the folder after it, so a power cut leaves one of the two versions too. A
    file that is replaced keeps its permissions; a new one gets those of the umask, whoever wrote it. A link keeps
    pointing: what it points to is replaced.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays the last part of the name: some writers choose the format by it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        if path.is_file():
            shutil.copymode(path, temporary)
        else:
            temporary.chmod(_mode_of_new_files(temporary))
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _mode_of_new_files(beside: Path) -> int:
    """What the umask leaves of rw-rw-rw-, asked of a file: reading the umask itself would set it for all threads."""
    probe = beside.with_name(f"{beside.name}.mode")
    os.close(os.open(probe, os.O_CREAT | os.O_WRONLY, 0o666))
    try:
        return stat.S_IMODE(probe.stat().st_mode)
    finally:
        probe.unlink()


def write_bytes(path: str | Path, data: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Indented JSON; a NaN or infinity is an error, because JSON has neither."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
