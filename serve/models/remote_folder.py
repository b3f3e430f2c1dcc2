"""A folder of models in object storage: `calibrant serve s3://bucket/models`.

Its files are copied to a folder of this machine, which is then served as any other: new files, changes and refusals,
canaries and golden rows are what they are there. A file comes under another name and is renamed when it is whole. What
is gone in the storage is taken away here too, so that a served model counts as missing and goes on from memory. Where
the storage does not answer, what was copied stays as it is, and that is said once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from calibrant.errors import ConfigError, DataError
from calibrant.serve.models.folder import is_model_path

log = logging.getLogger(__name__)
_PART = ".part"


def is_address(text: str) -> bool:
    """Of object storage, as fsspec writes it: s3://, gs://, memory://, ..."""
    scheme, found, _ = text.partition("://")
    return bool(found) and scheme.isalnum()


class RemoteFolder:
    def __init__(self, address: str, copies: Path) -> None:
        """`copies`: below which this address gets a folder of its own."""
        self.address = address.rstrip("/")
        self.folder = copies / hashlib.sha256(self.address.encode()).hexdigest()[:16]
        self._filesystem, self._root = _open(self.address)
        self._known: dict[str, str] = {}  # of what was copied: its mark in the storage
        self._silent = False
        self.failures = 0  # looks at which the storage did not answer

    def fetch(self) -> None:
        """The first copy, which must work."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._copy()
        except Exception as error:  # of whatever library the storage has
            raise DataError(f"cannot be read ({_why(error)})", where=self.address) from None

    def refresh(self) -> None:
        try:
            self._copy()
        except Exception as error:
            self.failures += 1
            if not self._silent:
                log.error("%s cannot be read (%s): what was loaded goes on", self.address, _why(error))
            self._silent = True
        else:
            if self._silent:
                log.error("%s can be read again", self.address)
            self._silent = False

    def _copy(self) -> None:
        there = dict(self._listed())
        for name, mark in there.items():
            local = self.folder / name
            if self._known.get(name) == mark and local.exists():
                continue
            local.parent.mkdir(parents=True, exist_ok=True)
            part = local.with_name(f".{local.name}{_PART}")
            self._filesystem.get_file(f"{self._root}/{name}", str(part))
            part.replace(local)
            self._known[name] = mark
        for local in [p for p in self.folder.rglob("*.onnx") if not p.name.startswith(".")]:
            name = local.relative_to(self.folder).as_posix()
            if name not in there:
                local.unlink(missing_ok=True)
                self._known.pop(name, None)

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Paths below the address, and what changes when their content does."""
        self._filesystem.invalidate_cache()
        for path, info in self._filesystem.find(self._root, detail=True).items():
            name = str(PurePosixPath(path).relative_to(self._root))
            if is_model_path(name):
                marks = [str(info.get(key)) for key in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")]
                yield name, f"{info.get('size')} {' '.join(marks)}"


def _open(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ConfigError("needs fsspec", where=address, fix="pip install 'calibrant[storage]'") from None
    try:
        filesystem, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except TypeError:  # that has no cache of listings
        filesystem, root = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"cannot be opened ({error})", where=address, fix="pip install 'calibrant[storage]'"
        ) from None
    return filesystem, str(root).rstrip("/")


def _why(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
