"""Image files under a folder, and those beside them that are not read."""

from __future__ import annotations

import os
from pathlib import Path

from calibrant.errors import DataError
from calibrant.images.decode import image_suffixes, unread_suffixes


def picture_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """At any depth, in order of their path: pictures that are read, and pictures of other formats.

    A link to nowhere is a picture, which will be named as one that cannot be read.
    """
    read: list[Path] = []
    unread: list[Path] = []
    waiting = [folder]
    known = frozenset((*image_suffixes(), *unread_suffixes()))
    while waiting:
        here = waiting.pop()
        try:
            entries = list(os.scandir(here))
        except OSError as error:
            raise DataError(f"cannot be listed ({error.strerror})", where=here) from None
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
                continue
            suffix = os.path.splitext(entry.name)[1].lower()
            if suffix not in known or entry.name.startswith("."):
                continue
            if entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path)):
                (read if suffix in image_suffixes() else unread).append(Path(entry.path))
    return sorted(read), sorted(unread)


def any_picture(folder: Path) -> bool:
    """Whether there is one, looked for no longer than until the first."""
    for top, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith((".", "__"))]
        if any(n.lower().endswith(image_suffixes()) and not n.startswith(".") for n in names):
            return bool(top)
    return False


def id_of(path: Path, root: Path) -> str:
    """The path below `root` as text; bytes of a name that are none stand as \\xff."""
    return os.fsencode(path.relative_to(root).as_posix()).decode(errors="backslashreplace")
