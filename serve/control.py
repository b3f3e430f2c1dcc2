"""The control plane: what a server tells of its models and takes about them, whatever transport brought the question.

Answers are the objects that the V2 protocol describes; what cannot be answered is a named error. Where the process is
one of several workers, what concerns all of them is asked of all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from calibrant._version import __version__
from calibrant.serve.models import description
from calibrant.serve.models.model import Model
from calibrant.serve.models.reload import Lifecycle
from calibrant.serve.models.repository import Repository
from calibrant.serve.monitor.labels import Labels, Reply
from calibrant.serve.processes.other_workers import OtherWorkers, merged_statistics
from calibrant.serve.protocol.errors import Forbidden, NotFound, NotReady, PutAway

if TYPE_CHECKING:
    from calibrant.serve.canaries import Canaries
    from calibrant.serve.monitor.log.shipping import LogShipping
    from calibrant.serve.monitor.monitor import Monitor

LOADING_SECONDS = 10.0  # labels wait as long for a file that another worker has loaded already
RESTORE_SECONDS = 2.0  # and for a log that is being read; then the caller is told when to come again
EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"]


class Control:
    """Health, metadata, statistics, loading, labels."""

    def __init__(self, repository: Repository, lifecycle: Lifecycle | None = None, *, admin: bool = False) -> None:
        """`admin`: callers may load and unload."""
        self.repository, self.lifecycle, self.admin = repository, lifecycle, admin
        self.accepting = True  # until the server is told to stop
        self.starting = False  # loading, or sharing out what was loaded
        self.others: OtherWorkers | None = None
        self.canaries: Canaries | None = None
        self.monitors: Sequence[Monitor] = ()  # all that the server has, of retired files too
        self.flush: Callable[[], None] = _nothing  # of the monitors
        self.awaits: Callable[[Collection[str]], bool] = lambda ids: False  # predictions of files still to be loaded
        self.restored: Callable[[], bool] = lambda: True  # an earlier log was read
        self.shipping: LogShipping | None = None  # of their log to object storage

    @property
    def ready(self) -> bool:
        return self.accepting and not self.starting and self.repository.ready

    # ---- metadata

    def server(self) -> dict[str, Any]:
        return {"name": "calibrant", "version": __version__, "extensions": EXTENSIONS}

    def model(self, name: str, version: str | None) -> Model:
        return self.repository.get(name, version)

    def metadata(self, name: str, version: str | None) -> dict[str, Any]:
        model = self.model(name, version)
        return description.metadata(model, self.repository.versions(model.name))

    def config(self, name: str, version: str | None) -> dict[str, Any]:
        return description.config(self.model(name, version))

    def index(self, *, only_ready: bool) -> list[dict[str, str]]:
        return [row for row in self.repository.index() if row["state"] == "READY" or not only_ready]

    async def statistics(
        self, name: str | None, version: str | None, *, everywhere: bool = True
    ) -> list[dict[str, Any]]:
        """Of one model or all; over all workers unless it is another one that asks."""
        own = [description.statistics(model) for model in self._of(name, version)]
        if self.others is None or not everywhere:
            return own
        return merged_statistics([own, *await self.others.statistics(name, version)])

    def _of(self, name: str | None, version: str | None) -> list[Model]:
        if name is None:
            return self.repository.all()
        if version is not None:
            return [self.repository.get(name, version)]
        self.repository.get(name)
        return list(self.repository.models[name].values())

    # ---- loading

    def require_admin(self) -> None:
        if not self.admin or self.lifecycle is None:
            raise Forbidden("loading and unloading over the network is off; start the server with --admin")

    def refuse_files(self, parameters: Iterable[str]) -> None:
        for key in parameters:
            if key == "config" or key.startswith("file:"):
                raise Forbidden(f'"{key[:40]}" would let a caller write model files, which this server never does')

    async def bring(self, away: PutAway) -> None:
        """Loads a model that was put away, for whoever can wait."""
        if self.lifecycle is not None:
            await self.lifecycle.bring(away.key)

    async def load(self, name: str, *, everywhere: bool = True) -> None:
        if self.lifecycle is not None:
            await self.lifecycle.load(name)
        if self.others is not None and everywhere:
            await self.others.load(name)

    async def unload(self, name: str, *, everywhere: bool = True) -> None:
        if self.lifecycle is not None:
            await self.lifecycle.unload(name)
        if self.others is not None and everywhere:
            await self.others.unload(name)

    def canary(self, name: str) -> dict[str, Any]:
        """The canary of a model, and what was decided about earlier ones."""
        self.model(name, None)
        return {"model": name, "canary": None, "decided": []} if self.canaries is None else self.canaries.report(name)

    def require_canaries(self) -> Canaries:
        if self.canaries is None:
            raise NotFound("this server has no canaries")
        return self.canaries

    # ---- labels and what they tell

    @property
    def leads(self) -> bool:
        """Whether labels and reports are this process's business: it watches the predictions of all."""
        return self.others is None or self.others.leads

    async def label(self, model: Model, given: Labels, *, pinned: bool) -> dict[str, Any]:
        """Takes true labels. Unless they are `pinned` to one version, whichever file answered gets them: a canary, or
        the one before a reload."""
        found, left = Reply(), given
        await self._until_restored()
        end = time.monotonic() + LOADING_SECONDS
        while True:
            await self._catch_up()
            found.add(await asyncio.to_thread(self._take, model, left, pinned=pinned))
            left = left.only(set(found.unknown))
            if not left.ids or not self.awaits(left.ids):
                break
            if time.monotonic() > end:
                raise NotReady("the version that predicted these is still being loaded here", retry_after=2)
            await asyncio.sleep(0.2)
        if found.unknown and len(found.unknown) == len(found.states):
            raise NotFound(f'no prediction of {model.name} has the id "{found.unknown[0][:80]}"')
        counts = {state: found.count(state) for state in ("accepted", "repeated", "changed")}
        return {**counts, "unknown": found.unknown}

    def _take(self, model: Model, given: Labels, *, pinned: bool) -> Reply:
        from calibrant.serve.monitor.taking import take_labels  # with statistics that most servers do without

        own = model.require_monitor()
        same = [m for m in tuple(self.monitors) if m.model.name == model.name and m.model.classes == own.model.classes]
        return take_labels(same or [own], given, model.version if pinned else None)

    async def _until_restored(self) -> None:
        end = time.monotonic() + RESTORE_SECONDS
        while not self.restored():
            if time.monotonic() > end:
                raise NotReady("the log of an earlier start is still being read; send the labels again", retry_after=5)
            await asyncio.sleep(0.05)

    async def report(self, model: Model, *, pinned: bool) -> dict[str, Any]:
        """What the model's monitor found; unless one version is asked for, with the others beside it for the figures
        that decide between canary and old."""
        monitor = model.require_monitor()
        models = [] if pinned else self.repository.models[model.name].values()
        others = [m.monitor for m in models if m.monitor is not None]

        def work() -> dict[str, Any]:
            body = monitor.report()
            shares = monitor.class_shares()
            if shares is not None:
                body["class_shares"] = shares
            if len(others) > 1:
                body["versions"] = {m.model.version: m.summary() for m in others}
            return body

        await self._catch_up()
        return await asyncio.to_thread(work)

    async def _catch_up(self) -> None:
        """Waits until the predictions that other workers have made so far are in the log and taken in here."""
        if self.others is not None:
            await self.others.flush()
            await asyncio.to_thread(self.flush)


def _nothing() -> None:
    pass
