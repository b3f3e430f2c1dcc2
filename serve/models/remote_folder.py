"""A folder of models in object storage: `calibrant serve s3://bucket/models`.

Its files are copied to a folder of this machine, which is then served as any other: new files, changes and refusals,
canaries and golden rows are what they are there. A file comes under another name and is renamed when it is whole. What
is gone in the storage is taken away here too, so that a served model counts as missing and goes on from memory. Where
the storage does not answer, what was copied stays as it is, and that is said once.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from calibrant.errors import DataError
from calibrant.remote.storage import Storage, why
from calibrant.serve.models.folder import is_model_path

log = logging.getLogger(__name__)


class RemoteFolder:
    def __init__(self, address: str, copies: Path) -> None:
        """`copies`: below which this address gets a folder of its own."""
        self.address = address.rstrip("/")
        self.folder = copies / hashlib.sha256(self.address.encode()).hexdigest()[:16]
        self._storage = Storage(address)
        self._known: dict[str, str] = {}  # of what was copied: its mark in the storage
        self._silent = False
        self.failures = 0  # looks at which the storage did not answer

    def fetch(self) -> None:
        """The first copy, which must work."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._copy()
        except Exception as error:  # of whatever library the storage has
            raise DataError(f"cannot be read ({why(error)})", where=self.address) from None

    def refresh(self) -> None:
        try:
            self._copy()
        except Exception as error:
            self.failures += 1
            if not self._silent:
                log.error("%s cannot be read (%s): what was loaded goes on", self.address, why(error))
            self._silent = True
        else:
            if self._silent:
                log.error("%s can be read again", self.address)
            self._silent = False

    def _copy(self) -> None:
        there = {name: mark for name, mark in self._storage.listed() if is_model_path(name)}
        for name, mark in there.items():
            if self._known.get(name) == mark and (self.folder / name).exists():
                continue
            self._storage.get([name], self.folder)
            self._known[name] = mark
        for local in [p for p in self.folder.rglob("*.onnx") if not p.name.startswith(".")]:
            name = local.relative_to(self.folder).as_posix()
            if name not in there:
                local.unlink(missing_ok=True)
                self._known.pop(name, None)
