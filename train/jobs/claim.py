"""Who runs a job where several processes share a folder: a lock on a file, which its owner's death opens."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

FOLDER = "claims"
# What a file system says that has no locks, as some network folders do.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_warned: set[Path] = set()


@contextmanager
def claim(out: Path, name: str) -> Iterator[bool]:
    """True where nobody else holds the name; it is held until the block ends, or the process does, kill -9 included.

    It is the kernel's lock (flock) on OUT/claims/NAME, not the file, that counts: a file which a killed process left is
    free. Between machines the lock holds as far as their shared file system carries it. Where there are no locks at all
    the answer is True, after a warning.
    """
    handle = _locked(out, name)
    if handle is None:
        yield False
        return
    try:
        yield True
    finally:
        if handle >= 0:
            _file(out, name).unlink(missing_ok=True)  # before the lock goes: who waits sees that its file is not this
            os.close(handle)


@contextmanager
def turn(out: Path, name: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """The claim, waited for; `waiting` is called once where it is not free at once."""
    told = False
    while True:
        with claim(out, name) as mine:
            if mine:
                yield
                return
        if not told:
            waiting()
            told = True
        time.sleep(0.5)


def _file(out: Path, name: str) -> Path:
    return out / FOLDER / name


def _locked(out: Path, name: str) -> int | None:
    """A handle that holds the lock; -1 where there are no locks; None where somebody else holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _without(out, "this system")
    file = _file(out, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(handle, file):
                return handle
            os.close(handle)  # its last owner has taken the file away between the two lines above
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError as error:
            os.close(handle)
            if error.errno not in _NO_LOCKS:
                raise
            return _without(out, "its file system")


def _is_still(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _without(out: Path, who: str) -> int:
    if out not in _warned:
        _warned.add(out)
        log.warning("%s: %s has no locks; start one command at a time on it, or give each its --shard", out, who)
    return -1
