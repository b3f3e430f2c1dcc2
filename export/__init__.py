"""Export: one ONNX file that holds the network, its calibration and everything that is needed to use it.

Importing this package loads neither torch nor onnx, so that editing a deployed file works where neither is installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrant.export.adoption.adopt import adopt
    from calibrant.export.checks.parity import Comparison
    from calibrant.export.config import ExportConfig
    from calibrant.export.graph.settings import About, Interface, Trained
    from calibrant.export.run import export_run
    from calibrant.export.to_onnx import export_onnx

__all__ = ["About", "Comparison", "ExportConfig", "Interface", "Trained", "adopt", "export_onnx", "export_run"]

_HOMES = {
    "About": "calibrant.export.graph.settings",
    "Comparison": "calibrant.export.checks.parity",
    "adopt": "calibrant.export.adoption.adopt",
    "ExportConfig": "calibrant.export.config",
    "Interface": "calibrant.export.graph.settings",
    "Trained": "calibrant.export.graph.settings",
    "export_onnx": "calibrant.export.to_onnx",
    "export_run": "calibrant.export.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
