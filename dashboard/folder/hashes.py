"""Hash of a file's content, worked out once for each state of the file."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from calibrant.dashboard.folder.files import Stamp


@lru_cache(256)
def sha256(file: Stamp) -> str:
    with open(file.path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
