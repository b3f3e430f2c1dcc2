"""Models that come, change and go while the server answers.

A changed file is loaded and measured beside the old one, takes its place between two requests, and the old one ends
when the last request that it had accepted is answered. A file that cannot be loaded leaves the old model in place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from calibrant.errors import CalibrantError
from calibrant.serve.models.model import Model, file_stamp
from calibrant.serve.models.repository import Repository, version_key
from calibrant.serve.protocol.errors import BadInput, NotReady, Refusal

log = logging.getLogger(__name__)

Load = Callable[[Path, str, str], Model]  # path, name, version


class Lifecycle:
    """Loads and retires models of a repository without stopping the event loop."""

    def __init__(self, repository: Repository, load: Load) -> None:
        self.repository, self._load = repository, load
        self.paths: dict[tuple[str, str], Path] = {}
        self._failed: dict[tuple[str, str], tuple[int, int, int]] = {}  # stamp of a file that would not load
        self._retiring: set[asyncio.Task[None]] = set()
        self._busy: set[tuple[str, str]] = set()
        self.reloads = 0
        self.failures = 0

    def watch(self, model: Model) -> None:
        self.paths[model.name, model.version] = model.session.path

    async def poll(self) -> None:
        """Loads again what has changed on disk since it was loaded, once the file has stopped changing."""
        for (name, version), path in list(self.paths.items()):
            models = self.repository.models.get(name, {})
            if version not in models or (name, version) in self._busy:
                continue
            stamp = file_stamp(path)
            if stamp in (models[version].stamp, (0, 0, 0)) or stamp == self._failed.get((name, version)):
                continue
            await asyncio.sleep(0.2)
            if file_stamp(path) != stamp:  # still being written
                continue
            try:
                await self._load_one((name, version))
            except Refusal as error:
                self._failed[name, version] = stamp
                log.error("%s: the changed file cannot be served, the old model goes on: %s", path, error.message)

    async def load(self, name: str) -> None:
        """(Re)loads all versions of a model that the server was started with; says what the first failure is."""
        keys = sorted((key for key in self.paths if key[0] == name), key=lambda key: version_key(key[1]))
        if not keys:
            raise BadInput(f'the server was not started with a model "{name[:80]}", and loads no other files')
        failed: Refusal | None = None
        for key in keys:
            try:
                await self._load_one(key)
            except Refusal as refusal:
                failed = failed or refusal
        if failed is not None:
            raise failed

    async def _load_one(self, key: tuple[str, str]) -> None:
        name, version = key
        if key in self._busy:
            raise NotReady(f'model "{name}" is being loaded', retry_after=2)
        self._busy.add(key)
        fresh = version not in self.repository.models.get(name, {})
        if fresh:
            self.repository.states[key] = ("LOADING", "")
        try:
            model = await asyncio.to_thread(self._load, self.paths[key], *key)
        except Exception as error:
            self.failures += 1
            if fresh:
                self.repository.states[key] = ("UNAVAILABLE", str(error) or type(error).__name__)
            if isinstance(error, CalibrantError):
                raise BadInput(str(error)) from None
            raise
        finally:
            self._busy.discard(key)
        old = self.repository.add(model)
        self.reloads += 1
        log.info("%s version %s is now %s (%s)", model.name, model.version, model.session.path, model.sha256[:12])
        if old is not None:
            self._retire(old)

    async def unload(self, name: str, version: str | None = None) -> None:
        self.repository.get(name, version)  # or a refusal that says what there is
        for each in [version] if version is not None else self.repository.versions(name):
            self._retire(self.repository.remove(name, each))

    def _retire(self, model: Model) -> None:
        task = asyncio.create_task(self._close_when_idle(model))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _close_when_idle(self, model: Model) -> None:
        while model.active or not model.batcher.idle:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(model.batcher.close)
        log.info("%s version %s (%s) is gone", model.name, model.version, model.sha256[:12])
