"""Code of one's own: losses, models, data sets, transforms, calibrators and metrics, by a name.

    calibrant train --plugin mine.py --loss mine --model tiny --data plugin:leaves --out runs/mine

A plugin is a Python file, or an installed module named by an entry point of the group `calibrant.plugins`. It runs only
where it is asked for. A run writes down its name and hash; whoever uses the run asks for it again, since nothing that
lies in a run folder is ever run. Importing this module imports no library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from calibrant.errors import ConfigError, did_you_mean

log = logging.getLogger(__name__)

T = TypeVar("T")
Kind = Literal["losses", "models", "datasets", "transforms", "calibrators", "metrics"]
KINDS: tuple[Kind, ...] = ("losses", "models", "datasets", "transforms", "calibrators", "metrics")
GROUP = "calibrant.plugins"  # of entry points
DATASET = "plugin:"  # how a path says that it is a data set of a plugin


@dataclass(frozen=True)
class Plugin:
    """`source`: what was asked for. `sha256`: of its file. `offers`: the names that it registered, by kind."""

    source: str
    name: str
    sha256: str
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "sha256": self.sha256, "offers": {k: list(v) for k, v in self.offers.items()}}


@dataclass(frozen=True)
class ModelRecord:
    """`make(num_classes, **options)` builds the network; `head` is the name of the module that gives its logits.

    Without `head` it must be like timm's: forward_features, forward_head, get_classifier. The rest says how pictures
    are prepared for it.
    """

    make: Callable[..., Any]
    head: str | None = None
    input_size: tuple[int, int] = (224, 224)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"
    crop_pct: float = 1.0


_TABLES: dict[Kind, dict[str, Any]] = {kind: {} for kind in KINDS}
_LOADED: dict[str, Plugin] = {}
_new: list[tuple[Kind, str]] | None = None  # what the plugin that is being loaded has registered


def register_loss(name: str) -> Callable[[T], T]:
    """A subclass of calibrant.train.losses.Loss, any nn.Module class, or a function of (logits, labels)."""
    return _registering("losses", name)


def register_model(name: str, **description: Any) -> Callable[[T], T]:
    """A function or class of (num_classes, **options) that gives an nn.Module; see `ModelRecord`."""

    def keep(make: T) -> T:
        _keep("models", name, ModelRecord(make, **description))  # type: ignore[arg-type]
        return make

    return keep


def register_dataset(name: str) -> Callable[[T], T]:
    """A function without arguments that gives one data set, or several by split: {"train": ..., "test": ...}.

    Each is a map-style data set of (picture, label), or one of Hugging Face's `datasets`. Use it as plugin:NAME.
    """
    return _registering("datasets", name)


def register_transform(name: str) -> Callable[[T], T]:
    """A function of a PIL picture, or of (picture, rng), for training pictures: augment.transforms = ["NAME"]."""
    return _registering("transforms", name)


def register_calibrator(form: T) -> T:
    """A record calibrant.calibration.calibrators.form.Form."""
    _keep("calibrators", form.method, form)  # type: ignore[attr-defined]
    return form


def register_metric(record: T) -> T:
    """A record calibrant.calibration.metrics.table.Metric."""
    _keep("metrics", record.key, record)  # type: ignore[attr-defined]
    return record


def registered(kind: Kind) -> Mapping[str, Any]:
    """What has been registered until now, by name."""
    return _TABLES[kind]


def loaded() -> tuple[Plugin, ...]:
    return tuple(_LOADED.values())


def sources() -> tuple[str, ...]:
    """What to load in another process to have the same there."""
    return tuple(_LOADED)


def load(source: str | Path) -> Plugin:
    """Runs a plugin, once: a .py file, or the name of an entry point."""
    key = str(source)
    if key in _LOADED:
        return _LOADED[key]
    path = Path(source)
    if path.suffix == ".py":
        if not path.is_file():
            raise ConfigError("no such file", where=f"--plugin {source}")
        module, name = f"calibrant_plugin_{path.stem}", path.name
        with _noting() as new:
            _run(path, module)
    else:
        module, name, path = _entry_point(key)
        with _noting() as new:
            _imported(module, key)
    offers = {kind: tuple(n for k, n in new if k == kind) for kind in KINDS}
    offers["models"] += _with_timm(module)
    plugin = Plugin(key, name, sha256_of(path), {k: v for k, v in offers.items() if v})
    if not plugin.offers:
        log.warning("%s registers nothing", name)
    _LOADED[key] = plugin
    return plugin


def forget(source: str | Path) -> None:
    """As if it had never been loaded, for a notebook that has changed its file."""
    plugin = _LOADED.pop(str(source), None)
    for kind in KINDS:
        for name in () if plugin is None else plugin.offers.get(kind, ()):
            _TABLES[kind].pop(name, None)


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def missing(recorded: Sequence[Mapping[str, Any]], kind: Kind, name: str) -> Mapping[str, Any] | None:
    """The recorded plugin that `name` comes from, where it has not been loaded."""
    if name in _TABLES[kind] or any(name in p.offers.get(kind, ()) for p in loaded()):
        return None
    return next((p for p in recorded if name in p.get("offers", {}).get(kind, ())), None)


def require(recorded: Sequence[Mapping[str, Any]], kind: Kind, name: str, where: str | Path) -> None:
    """Refuses to go on without the plugin that a recorded name needs; tells one that has changed since."""
    lacking = missing(recorded, kind, name)
    if lacking is not None:
        raise ConfigError(
            f'its {kind[:-1]} "{name}" comes from the plugin {lacking["name"]} (sha256 {lacking["sha256"][:12]}), and '
            "code is never run from a run folder by itself",
            where=where,
            fix=f"pass it again: --plugin {lacking['name']}",
        )
    for before in recorded:
        now = _of_name(str(before["name"]))
        if name in before.get("offers", {}).get(kind, ()) and now is not None and now.sha256 != before["sha256"]:
            log.warning(
                "%s: the plugin %s is not as it was when this was made (sha256 %s, now %s)",
                where,
                now.name,
                before["sha256"][:12],
                now.sha256[:12],
            )


def require_same(recorded: Sequence[Mapping[str, Any]], where: str | Path) -> None:
    """What goes on must go on with the same code."""
    for before in recorded:
        now = _of_name(str(before["name"]))
        if now is None:
            raise ConfigError(
                f"was started with the plugin {before['name']}, and code is never run from a run folder by itself",
                where=where,
                fix=f"pass it again: --plugin {before['name']}",
            )
        if now.sha256 != before["sha256"]:
            raise ConfigError(
                f"the plugin {now.name} has changed since the run began (sha256 {before['sha256'][:12]}, now "
                f"{now.sha256[:12]})",
                where=where,
                fix="go on with the file as it was, or start a new run",
            )


class Extended(Mapping[str, T]):
    """A table of our own, and behind it what plugins have registered until now."""

    def __init__(self, own: Mapping[str, T], kind: Kind) -> None:
        self.own, self.kind = own, kind

    def __getitem__(self, name: str) -> T:
        return self.own[name] if name in self.own else self._more()[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self._more()

    def __len__(self) -> int:
        return len(self.own) + len(self._more())

    def _more(self) -> Mapping[str, T]:
        more: Mapping[str, T] = _TABLES[self.kind]
        taken = next((name for name in more if name in self.own), None)
        if taken is not None:
            raise ConfigError(f'"{taken}" is one of our own {self.kind}', where="plugin", fix="register another name")
        return more


# ---- inside ----


def _registering(kind: Kind, name: str) -> Callable[[T], T]:
    def keep(thing: T) -> T:
        _keep(kind, name, thing)
        return thing

    return keep


def _keep(kind: Kind, name: str, thing: Any) -> None:
    before = next((p for p in loaded() if name in p.offers.get(kind, ())), None)
    if _new is not None and before is not None:
        raise ConfigError(f'the {kind[:-1]} "{name}" is registered by {before.name} too', where="--plugin")
    _TABLES[kind][name] = thing
    if _new is not None:
        _new.append((kind, name))


@contextmanager
def _noting() -> Iterator[list[tuple[Kind, str]]]:
    global _new
    _new = []
    try:
        yield _new
    finally:
        _new = None


def _run(path: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:  # whatever somebody's code raises
        del sys.modules[name]
        raise ConfigError(f"cannot be run ({type(error).__name__}: {error})", where=f"--plugin {path}") from error


def _entry_point(name: str) -> tuple[str, str, Path]:
    """Module, name and file of an installed plugin."""
    from importlib.metadata import entry_points

    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        raise ConfigError(
            f'"{name}" is neither a .py file nor an entry point of {GROUP}',
            where="--plugin",
            fix=did_you_mean(name, known) if known else "no installed package has one",
        )
    module = known[name].module
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"its module {module} cannot be found", where=f"--plugin {name}")
    return module, name, Path(spec.origin)


def _imported(module: str, name: str) -> None:
    try:
        importlib.import_module(module)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"cannot be imported ({type(error).__name__}: {error})", where=f"--plugin {name}") from error


def _with_timm(module: str) -> tuple[str, ...]:
    """Models that the plugin has registered with timm itself."""
    timm = sys.modules.get("timm")
    if timm is None:
        return ()
    names = timm.list_models()
    return tuple(n for n in names if timm.model_entrypoint(n).__module__.partition(".")[0] == module.partition(".")[0])


def _of_name(name: str) -> Plugin | None:
    return next((p for p in loaded() if p.name == name), None)
