"""Training: losses, data, the engine, and the runs that it writes.

from calibrant.train import TrainConfig, fit, load_run
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrant.train.config import TrainConfig, train_config
    from calibrant.train.engine import fit
    from calibrant.train.predict import predict_run
    from calibrant.train.run.folder import TrainedModel, load_run

__all__ = ["TrainConfig", "TrainedModel", "fit", "load_run", "predict_run", "train_config"]

# Imported when asked for: importing one loss or the leaf generator must not load the engine.
_HOMES = {
    "fit": "engine",
    "TrainConfig": "config", "train_config": "config", "predict_run": "predict",
    "TrainedModel": "run.folder", "load_run": "run.folder",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


class _Callable(ModuleType):
    """`calibrant.train` is this package and, as notebooks call it, the function of that name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        import calibrant

        return calibrant._train(*args, **options)


sys.modules[__name__].__class__ = _Callable
