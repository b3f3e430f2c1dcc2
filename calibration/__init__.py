"""Calibration: metrics with their uncertainty, calibrators, the prior adjustment, prediction sets and reports.

Nothing is imported before it is asked for: the server calls `monitoring` and must not carry the calibrators with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrant.calibration.calibrators import METHODS, Calibrator, fit
    from calibrant.calibration.evaluation import Evaluation, evaluate
    from calibrant.calibration.intervals.measured import Measured
    from calibrant.calibration.verdict.front import verdict
    from calibrant.calibration.verdict.labels_needed import labels_needed
    from calibrant.calibration.verdict.verdict import Verdict
else:
    # The room of verdicts and the function have one name. Loaded once, the room leaves the name alone.
    from calibrant.calibration import verdict

    del verdict

__all__ = [
    "METHODS", "Calibrator", "Evaluation", "Measured", "Verdict", "evaluate", "fit", "labels_needed", "verdict",
]  # fmt: skip

_HOMES = {
    "METHODS": "calibrators", "Calibrator": "calibrators", "fit": "calibrators",
    "Evaluation": "evaluation", "evaluate": "evaluation", "Measured": "intervals.measured",
    "verdict": "verdict.front", "labels_needed": "verdict.labels_needed", "Verdict": "verdict.verdict",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
