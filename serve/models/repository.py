"""The models that a server holds, by name and version, and the state of each: loading, ready, unavailable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calibrant.errors import did_you_mean
from calibrant.serve.models.folder import version_key
from calibrant.serve.models.model import Model
from calibrant.serve.protocol.errors import ModelNotFound, NotReady, PutAway

NEWEST = "newest"  # in place of a canary's version: each that comes
UNLOADED = ("UNAVAILABLE", "unloaded")  # as somebody wished
AWAY = ("UNAVAILABLE", "put away to save memory; loaded when somebody asks")


@dataclass(frozen=True)
class Canary:
    """A version that answers a share of the requests that name none."""

    version: str
    share: float


class Repository:
    """Models by name, then version; the newest version answers when a caller names none."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Model]] = {}
        self.states: dict[tuple[str, str], tuple[str, str]] = {}  # of what is not ready: state, reason
        self.away: set[tuple[str, str]] = set()  # loaded when somebody asks
        self.optional: set[tuple[str, str]] = set()  # whose failure is no reason to be not ready
        self.starting = 0  # models that are still to be loaded for the first time
        self.canaries: dict[str, Canary] = {}
        self.to_try: dict[str, float] = {}  # name: share that each newer version gets as a canary
        self.rolled_back: dict[tuple[str, str], tuple[str, float]] = {}  # hash of the file, and the share it had
        self.promoted: dict[str, tuple[str, frozenset[str]]] = {}  # name: version, and newer ones that it comes before
        self.shadows: dict[str, list[tuple[str, float]]] = {}  # name: versions that get copies, and of what share

    def add(self, model: Model) -> Model | None:
        """Puts the model in place and gives back the one that it replaces, which has yet to be drained."""
        versions = self.models.setdefault(model.name, {})
        old = versions.get(model.version)
        if versions:
            self._try_out(model, versions)
        versions[model.version] = model
        self.forget((model.name, model.version))
        return old

    def _try_out(self, model: Model, versions: Iterable[str]) -> None:
        """Makes a canary of what comes beside versions that answer, where that is asked for; also of a file that takes
        the place of one that was rolled back."""
        key = (model.name, model.version)
        back = self.rolled_back.get(key)
        if back is not None and back[0] != model.sha256:
            del self.rolled_back[key]
            self.canaries[model.name] = Canary(model.version, back[1])
        share = self.to_try.get(model.name)
        if share is None or self.starting or key in self.rolled_back:
            return
        if version_key(model.version) > max(map(version_key, versions)):
            before = self.canaries.get(model.name)
            if before is not None and before.version != model.version:  # it must not answer all in its place
                self.rolled_back[model.name, before.version] = (self.sha256(model.name, before.version), before.share)
            self.canaries[model.name] = Canary(model.version, share)

    def has(self, name: str, version: str) -> bool:
        return version in self.models.get(name, {})

    def sha256(self, name: str, version: str) -> str:
        model = self.models.get(name, {}).get(version)
        return "" if model is None else model.sha256

    def newer(self, name: str, version: str) -> list[str]:
        return [v for v in self.versions(name) if version_key(v) > version_key(version)]

    def settle(self, name: str, version: str, sha256: str, *, over: Iterable[str] | None) -> None:
        """A canary is one no longer: it answers all who name no version, before newer ones that it was promoted
        `over`, or (None) none of them."""
        canary = self.canaries.get(name)
        share = 0.0
        if canary is not None and canary.version == version:
            share = self.canaries.pop(name).share
        if over is not None:
            self.promoted[name] = (version, frozenset(over))
        else:
            self.rolled_back[name, version] = (sha256, share)

    def pair(self, name: str) -> tuple[Model, Model] | None:
        """The version that answers and the canary, where both are loaded."""
        versions, canary = self.models.get(name, {}), self.canaries.get(name)
        if canary is None or canary.version not in versions or len(versions) < 2:
            return None
        usual = self._usual(name, versions)
        return None if usual == canary.version else (versions[usual], versions[canary.version])

    def put_away(self, key: tuple[str, str]) -> None:
        self.states[key] = AWAY
        self.away.add(key)

    def is_away(self, key: tuple[str, str]) -> bool:
        return key in self.away

    def forget(self, key: tuple[str, str]) -> None:
        """Whatever was known of a model that is not loaded."""
        self.states.pop(key, None)
        self.away.discard(key)

    def remove(self, name: str, version: str) -> Model:
        model = self.get(name, version)
        del self.models[name][version]
        if not self.models[name]:
            del self.models[name]
        self.states[(name, version)] = UNLOADED
        return model

    def still_loading(self) -> NotReady:
        return NotReady(f"{self.starting} model(s) are still being loaded", retry_after=5)

    def get(self, name: str, version: str | None = None) -> Model:
        versions = self.models.get(name)
        if self.away and (put_away := self._away(name, version)) is not None:
            raise PutAway(name, put_away)
        if not versions:
            if self.starting:
                raise self.still_loading()
            if any(known == name for known, _ in self.states):
                raise NotReady(f'model "{name}" is not loaded', retry_after=5)
            raise ModelNotFound(f'no model "{name[:80]}"; {did_you_mean(name, self.models)}')
        if version is None:
            if len(versions) == 1:
                return next(iter(versions.values()))
            return versions[self._usual(name, versions)]
        if version not in versions:
            raise ModelNotFound(f'model "{name}" has no version "{version[:40]}"; it has {", ".join(versions)}')
        return versions[version]

    def _usual(self, name: str, versions: Iterable[str]) -> str:
        """The version that answers who names none: the newest that is no canary or shadow and was not rolled back, but
        for one that was promoted over it."""
        known = list(versions)
        apart = {v for v, _ in self.shadows.get(name, ())} | {v for v in known if (name, v) in self.rolled_back}
        if (canary := self.canaries.get(name)) is not None:
            apart.add(canary.version)
        may = [v for v in known if v not in apart] or known
        promoted, over = self.promoted.get(name, ("", frozenset()))
        return max([v for v in may if v not in over] if promoted in may else may, key=version_key)

    def _away(self, name: str, version: str | None) -> str | None:
        """The version that would answer, where it is put away."""
        away = {v for n, v in self.away if n == name}
        if not away:
            return None
        chosen = version if version is not None else self._usual(name, [*self.models.get(name, ()), *away])
        return chosen if chosen in away else None

    def answering(self, name: str, version: str) -> tuple[str, str] | None:
        """The model whose callers a new file would get: of its own version, else of the one that answers now."""
        versions = [*self.models.get(name, ()), *(v for n, v in self.away if n == name)]
        if not versions:
            return None
        return (name, version if version in versions else self._usual(name, versions))

    @property
    def ready(self) -> bool:
        """Whether all models are that are meant to be."""
        if self.starting or not (self.models or self.away or self.optional):
            return False
        return all(state in (UNLOADED, AWAY) or key in self.optional for key, state in self.states.items())

    def versions(self, name: str) -> list[str]:
        return sorted(self.models.get(name, ()), key=version_key)

    def all(self) -> list[Model]:
        return [m for name in sorted(self.models) for m in self._sorted(name)]

    def _sorted(self, name: str) -> list[Model]:
        versions = self.models[name]
        return [versions[v] for v in sorted(versions, key=version_key)] if len(versions) > 1 else [*versions.values()]

    def index(self) -> list[dict[str, str]]:
        rows = [{"name": m.name, "version": m.version, "state": "READY", "reason": ""} for m in self.all()]
        rows += [
            {"name": name, "version": version, "state": state, "reason": reason}
            for (name, version), (state, reason) in sorted(self.states.items())
        ]
        return rows
