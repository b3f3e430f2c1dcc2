"""Models that come, change and go while the server answers.

A changed file is loaded and measured beside the old one, takes its place between two requests, and the old one ends
when the last request that it had accepted is answered. A file that cannot be loaded, or must not answer, leaves the old
model in place. So does one that is gone: the model goes on from memory.

In folders new models are looked for (`poll`) or loaded when somebody says so (`explicit`). Where there is a budget of
memory, the models of folders that were asked longest ago are put away, and loaded again when somebody asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from calibrant.errors import CalibrantError, ConfigError
from calibrant.serve.config import ModelSpec
from calibrant.serve.models.acceptance import NotAccepted
from calibrant.serve.models.folder import Key, models_in, version_key
from calibrant.serve.models.memory import file_bytes, to_put_away
from calibrant.serve.models.model import Model, file_stamp
from calibrant.serve.models.remote_folder import RemoteFolder
from calibrant.serve.models.repository import UNLOADED, Repository
from calibrant.serve.protocol.errors import BadInput, NotReady, Refusal

log = logging.getLogger(__name__)

Load = Callable[[Path, str | None, str], Model]  # path, name, version
NOTHING = (0, 0, 0)  # stamp of a file that is not there


class Lifecycle:
    """Loads and retires models of a repository without stopping the event loop."""

    def __init__(
        self,
        repository: Repository,
        load: Load,
        *,
        folders: Sequence[Path] = (),
        remote: Sequence[RemoteFolder] = (),
        explicit: bool = False,
        memory: int | None = None,
        at_once: int = 2,
    ) -> None:
        """`explicit`: of the folders, only what is asked for. `memory`: bytes of their files. `at_once`: loads."""
        self.repository, self._load = repository, load
        self.folders = (*folders, *(each.folder for each in remote))
        self.remote, self.explicit, self.memory, self._at_once = tuple(remote), explicit, memory, at_once
        self.paths: dict[Key, Path] = {}
        self.missing: set[Key] = set()  # loaded, and the file is gone
        self._of_folder: set[Key] = set()
        self._failed: dict[Key, tuple[int, int, int]] = {}  # stamp of a file that would not load
        self._retiring: set[asyncio.Task[None]] = set()
        self._loading: dict[Key, asyncio.Task[None]] = {}
        self.reloads = 0
        self.failures = 0
        self.refusals = 0  # of files that could be loaded, and must not answer
        self.put_away = 0

    # ---- at the start

    async def start(self, named: Sequence[ModelSpec], wanted: Collection[str] = ()) -> None:
        """Loads what was named, which must work, and of the folders what works: all, or where that is explicit the
        `wanted`."""
        gate = asyncio.Semaphore(self._at_once)
        for each in self.remote:
            await asyncio.to_thread(each.fetch)
        self._scan()
        if self.folders and not self._of_folder:
            raise ConfigError(
                "holds no models",
                where=self.remote[0].address if self.remote else self.folders[0],
                fix="put them there as NAME.onnx, NAME@VERSION.onnx or NAME/VERSION/model.onnx",
            )
        unknown = sorted(set(wanted) - {name for name, _ in self._of_folder})
        if unknown:
            raise ConfigError(f'no model "{unknown[0]}" in the folders', where="--load")
        keys = [k for k in sorted(self._of_folder) if k[0] in wanted or not self.explicit]
        self.repository.starting = len(named) + len(keys)

        async def one(spec: ModelSpec) -> None:
            async with gate:
                model = await asyncio.to_thread(self._load, spec.path, spec.name, spec.version)
            key = (model.name, model.version)
            if key in self.paths:
                raise ConfigError(
                    f'there are two models "{model.name}" of version {model.version}',
                    where=spec.path,
                    fix=f"tell them apart: {model.name}@2={spec.path}",
                )
            self.repository.add(model)
            self.watch(model)
            self.repository.starting -= 1

        async def found(key: Key) -> None:
            async with gate:
                await self._try(key)
            self.repository.starting -= 1

        await asyncio.gather(*map(one, named), *map(found, self._within_memory(keys)))
        self.repository.starting = 0
        self.reloads = 0

    def _within_memory(self, keys: Sequence[Key]) -> list[Key]:
        """Those to load at once; the others wait until somebody asks for them. The newest versions come first."""
        if self.memory is None:
            return list(keys)
        chosen, free = [], self.memory
        for key in sorted(keys, key=lambda k: version_key(k[1]), reverse=True):
            size = file_bytes(self.paths[key])
            if size <= free:
                chosen.append(key)
                free -= size
            else:
                self.repository.put_away(key)
                self.repository.starting -= 1
        return chosen

    def watch(self, model: Model) -> None:
        self.paths[model.name, model.version] = model.session.path

    def _scan(self) -> None:
        """Learns what lies in the folders now. What is gone and was never loaded is forgotten."""
        found: dict[Key, Path] = {}
        for folder in self.folders:
            try:
                found = {**models_in(folder), **found}
            except CalibrantError as error:
                if not self._of_folder:
                    raise
                log.error("%s", error)
                return
        for key, path in found.items():
            if key not in self.paths or key in self._of_folder:
                self.paths[key] = path
                self._of_folder.add(key)
                self.repository.optional.add(key)
        for key in self._of_folder - found.keys():
            if self._loaded(key) is None and key not in self._loading:
                self._of_folder.discard(key)
                self.paths.pop(key, None)
                self.repository.forget(key)

    def is_of_folder(self, key: Key) -> bool:
        return key in self._of_folder

    def refuse(self, key: Key, error: CalibrantError) -> None:
        """Takes a model back that was loaded, until its file changes."""
        self.refusals += 1
        self._failed[key] = file_stamp(self.paths[key])
        self._retire(self.repository.remove(*key))
        self.repository.states[key] = ("UNAVAILABLE", str(error))
        log.error("%s version %s: the file cannot be served: %s", *key, error)

    def _loaded(self, key: Key) -> Model | None:
        return self.repository.models.get(key[0], {}).get(key[1])

    # ---- while serving

    async def poll(self) -> None:
        """Loads again what has changed on disk since it was loaded, once the file has stopped changing, and what is
        new in the folders."""
        await self._fetch()
        if self.folders and not self.explicit:
            self._scan()
        for key, path in list(self.paths.items()):
            stamp = self._due(key, path)
            if stamp is None:
                continue
            await asyncio.sleep(0.2)
            if file_stamp(path) == stamp:  # else it is still being written
                await self._try(key)

    async def _fetch(self) -> None:
        for each in self.remote:
            await asyncio.to_thread(each.refresh)

    def _due(self, key: Key, path: Path) -> tuple[int, int, int] | None:
        """The stamp of a file that is to be loaded."""
        loaded, stamp = self._loaded(key), file_stamp(path)
        if stamp == NOTHING:
            if loaded is not None and key not in self.missing:
                self.missing.add(key)
                log.error("%s is gone; %s version %s goes on from memory", path, *key)
            return None
        self.missing.discard(key)
        if key in self._loading or stamp == self._failed.get(key):
            return None
        if loaded is not None:
            return None if stamp == loaded.stamp else stamp
        wanted = key in self._of_folder and not self.explicit and not self.repository.is_away(key)
        return stamp if wanted and self.repository.states.get(key) != UNLOADED else None

    async def _try(self, key: Key) -> None:
        """Loads, or says in the log why not."""
        path, stamp = self.paths[key], file_stamp(self.paths[key])
        old = self._loaded(key)
        try:
            await self._load_one(key)
        except Refusal as error:
            self._failed[key] = stamp
            goes_on = "" if old is None else "; the old model goes on"
            log.error("%s version %s: the file cannot be served%s: %s", *key, goes_on, error.message)
        except Exception:
            self._failed[key] = stamp
            log.exception("%s: loading failed", path)

    async def load(self, name: str) -> None:
        """(Re)loads all versions of a model that the server was started with, or that lie in its folders; says what
        the first failure is."""
        await self._fetch()
        self._scan()
        keys = sorted((key for key in self.paths if key[0] == name), key=lambda key: version_key(key[1]))
        if not keys:
            where = f"no model of that name lies in {self.folders[0].name}" if self.folders else "loads no other files"
            raise BadInput(f'the server was not started with a model "{name[:80]}", and {where}')
        failed: Refusal | None = None
        for key in keys:
            try:
                await self._load_one(key)
            except Refusal as refusal:
                failed = failed or refusal
        if failed is not None:
            raise failed

    async def bring(self, key: Key) -> None:
        """Loads a model that was put away; several who ask wait for the same load."""
        if key in self._loading:
            await asyncio.shield(self._loading[key])
        elif self.repository.is_away(key):
            await self._load_one(key)

    async def _load_one(self, key: Key) -> None:
        if key in self._loading:
            raise NotReady(f'model "{key[0]}" is being loaded', retry_after=2)
        task = self._loading[key] = asyncio.ensure_future(self._replace(key))
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._loading.pop(key, None)
            else:  # the caller is gone; the load is not
                task.add_done_callback(lambda _: self._loading.pop(key, None))

    async def _replace(self, key: Key) -> None:
        name, version = key
        away = self.repository.is_away(key)
        fresh = self._loaded(key) is None and not away
        if fresh:
            self.repository.states[key] = ("LOADING", "")
        try:
            self._make_room(key)
            model = await asyncio.to_thread(self._load, self.paths[key], name, version)
        except Exception as error:
            self.failures += 1
            self.refusals += isinstance(error, NotAccepted)
            if fresh:
                self.repository.states[key] = ("UNAVAILABLE", str(error) or type(error).__name__)
            if isinstance(error, CalibrantError):
                raise BadInput(str(error)) from None
            raise
        self._failed.pop(key, None)
        old = self.repository.add(model)
        self.reloads += 1
        log.info("%s version %s is now %s (%s)", model.name, model.version, model.session.path, model.sha256[:12])
        if old is not None:
            self._retire(old)

    def _make_room(self, key: Key) -> None:
        if self.memory is None or key not in self._of_folder:
            return
        others = [m for m in self.repository.all() if (m.name, m.version) in self._of_folder - {key}]
        for model in to_put_away(others, file_bytes(self.paths[key]), self.memory):
            self.put_away += 1
            self._retire(self.repository.remove(model.name, model.version))
            self.repository.put_away((model.name, model.version))
            log.info("%s version %s is put away, to make room for %s", model.name, model.version, key[0])

    async def unload(self, name: str, version: str | None = None) -> None:
        away = [v for n, v in list(self.repository.away) if n == name and version in (None, v)]
        for each in away:
            self.repository.forget((name, each))
            self.repository.states[name, each] = UNLOADED
        if away and not self.repository.models.get(name):
            return
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
