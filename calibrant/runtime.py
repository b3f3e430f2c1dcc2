"""onnxruntime, found in one place.

Two distributions install the same module: onnxruntime (extra `cpu`) and onnxruntime-gpu (extra `gpu`). None may be
there; or both, of which the one installed last is imported; or half of one, after the other was removed, which imports
as an empty module while `pip check` stays clean. Each case has one line with its repair.
"""

from __future__ import annotations

import importlib
from typing import Any

from calibrant.errors import CalibrantError

DISTRIBUTIONS = {"onnxruntime": "cpu", "onnxruntime-gpu": "gpu"}  # and the extra that brings each


class RuntimeMissing(CalibrantError):
    """onnxruntime is not installed, or what is left of it cannot run."""


def runtime() -> Any:
    """The module `onnxruntime`, whole; RuntimeMissing names what to install."""
    try:
        module = importlib.import_module("onnxruntime")
    except ImportError as error:
        if installed():
            raise RuntimeMissing(f"onnxruntime cannot be imported ({error})", fix=_repair()) from None
        raise RuntimeMissing(
            "onnxruntime is not installed",
            fix="run: pip install 'calibrant[cpu]'  (or 'calibrant[gpu]' for NVIDIA)",
        ) from None
    if not hasattr(module, "InferenceSession"):
        raise RuntimeMissing("onnxruntime is installed in part only", fix=_repair())
    return module


def installed() -> list[str]:
    """The distributions of onnxruntime that pip knows here, of which there should be one."""
    return [name for name in DISTRIBUTIONS if _version(name) is not None]


def _version(name: str) -> str | None:
    from importlib import metadata  # a MB, for who is to be told

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _repair() -> str:
    keep = installed() or ["onnxruntime"]
    others = f"; only one of {' and '.join(keep)} may be installed" if len(keep) > 1 else ""
    return f"run: pip install --force-reinstall --no-deps {keep[-1]}{others}"
