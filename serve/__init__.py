"""Serving deployed files: `load(path)` in a program, `calibrant serve` over the network.

onnxruntime is imported when a file is loaded, not when this package is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrant.serve.engine.classifier import Classifier, load
    from calibrant.serve.engine.result import Result

__all__ = ["Classifier", "Result", "load"]

_WHERE = {"Classifier": "engine.classifier", "load": "engine.classifier", "Result": "engine.result"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
