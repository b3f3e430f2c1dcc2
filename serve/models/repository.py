"""The models that a server holds, by name and version, and the state of each: loading, ready, unavailable."""

from __future__ import annotations

from collections.abc import Iterable

from calibrant.errors import did_you_mean
from calibrant.serve.models.model import Model
from calibrant.serve.protocol.errors import ModelNotFound, NotReady, PutAway


def version_key(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdigit() else (-1, version)


UNLOADED = ("UNAVAILABLE", "unloaded")  # as somebody wished
AWAY = ("UNAVAILABLE", "put away to save memory; loaded when somebody asks")


class Repository:
    """Models by name, then version; the newest version answers when a caller names none."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Model]] = {}
        self.states: dict[tuple[str, str], tuple[str, str]] = {}  # of what is not ready: state, reason
        self.away: set[tuple[str, str]] = set()  # loaded when somebody asks
        self.optional: set[tuple[str, str]] = set()  # whose failure is no reason to be not ready
        self.starting = 0  # models that are still to be loaded for the first time
        self.canaries: dict[str, tuple[str, float]] = {}  # name: version, share of the requests that name no version
        self.shadows: dict[str, list[tuple[str, float]]] = {}  # name: versions that get copies, and of what share

    def add(self, model: Model) -> Model | None:
        """Puts the model in place and gives back the one that it replaces, which has yet to be drained."""
        versions = self.models.setdefault(model.name, {})
        old = versions.get(model.version)
        versions[model.version] = model
        self.forget((model.name, model.version))
        return old

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

    def get(self, name: str, version: str | None = None) -> Model:
        versions = self.models.get(name)
        if self.away and (put_away := self._away(name, version)) is not None:
            raise PutAway(name, put_away)
        if not versions:
            if self.starting:
                raise NotReady(f"{self.starting} model(s) are still being loaded", retry_after=5)
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
        """The version that answers who names none: the newest that is no canary or shadow."""
        apart = {v for v, _ in self.shadows.get(name, ())} | {v for v, _ in [self.canaries.get(name, ("", 0.0))]}
        known = list(versions)
        return max([v for v in known if v not in apart] or known, key=version_key)

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
