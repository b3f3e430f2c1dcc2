"""The models that a server holds, by name and version, and the state of each: loading, ready, unavailable."""

from __future__ import annotations

from calibrant.errors import did_you_mean
from calibrant.serve.models.model import Model
from calibrant.serve.protocol.errors import ModelNotFound, NotReady


def version_key(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdigit() else (-1, version)


UNLOADED = ("UNAVAILABLE", "unloaded")  # as somebody wished


class Repository:
    """Models by name, then version; the newest version answers when a caller names none."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Model]] = {}
        self.states: dict[tuple[str, str], tuple[str, str]] = {}  # of what is not ready: state, reason
        self.canaries: dict[str, tuple[str, float]] = {}  # name: version, share of the requests that name no version
        self.shadows: dict[str, list[tuple[str, float]]] = {}  # name: versions that get copies, and of what share

    def add(self, model: Model) -> Model | None:
        """Puts the model in place and gives back the one that it replaces, which has yet to be drained."""
        versions = self.models.setdefault(model.name, {})
        old = versions.get(model.version)
        versions[model.version] = model
        self.states.pop((model.name, model.version), None)
        return old

    def remove(self, name: str, version: str) -> Model:
        model = self.get(name, version)
        del self.models[name][version]
        if not self.models[name]:
            del self.models[name]
        self.states[(name, version)] = UNLOADED
        return model

    def get(self, name: str, version: str | None = None) -> Model:
        versions = self.models.get(name)
        if not versions:
            if any(known == name for known, _ in self.states):
                raise NotReady(f'model "{name}" is not loaded', retry_after=5)
            raise ModelNotFound(f'no model "{name[:80]}"; {did_you_mean(name, self.models)}')
        if version is None:
            if len(versions) == 1:
                return next(iter(versions.values()))
            apart = {v for v, _ in self.shadows.get(name, ())} | {v for v, _ in [self.canaries.get(name, ("", 0.0))]}
            usual = [m for m in versions.values() if m.version not in apart] or list(versions.values())
            return usual[0] if len(usual) == 1 else max(usual, key=lambda m: version_key(m.version))
        if version not in versions:
            raise ModelNotFound(f'model "{name}" has no version "{version[:40]}"; it has {", ".join(versions)}')
        return versions[version]

    @property
    def ready(self) -> bool:
        """Whether all models are that are meant to be."""
        return bool(self.models) and all(state == UNLOADED for state in self.states.values())

    def versions(self, name: str) -> list[str]:
        return sorted(self.models.get(name, ()), key=version_key)

    def all(self) -> list[Model]:
        return [m for name in sorted(self.models) for m in self.models[name].values()]

    def index(self) -> list[dict[str, str]]:
        rows = [{"name": m.name, "version": m.version, "state": "READY", "reason": ""} for m in self.all()]
        rows += [
            {"name": name, "version": version, "state": state, "reason": reason}
            for (name, version), (state, reason) in sorted(self.states.items())
        ]
        return rows
