"""Calibrant: image classifiers whose confidence can be trusted, from training to production.

import calibrant
predictions = calibrant.load_predictions("logits.npz")    # or a table, arrays, tensors, a run folder
calibrant.evaluate(predictions)                           # verdict, metrics with intervals
calibrator = calibrant.fit(predictions)                   # temperature scaling, unless told otherwise
model = calibrant.load("model.onnx")                      # a served file as an object
model.predict("pictures/")

Everything is loaded when it is asked for.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING, Any

from calibrant._version import __version__

if TYPE_CHECKING:
    from calibrant.api.calibrating import compare, evaluate, fit
    from calibrant.api.deployed import adopt, load
    from calibrant.api.diagrams import reliability_diagram, risk_coverage
    from calibrant.api.prediction import load_predictions, predict
    from calibrant.api.saving import save_run
    from calibrant.api.tracking import log_report
    from calibrant.api.training import fit_head, train
    from calibrant.calibration.estimators import CalibratedClassifier, LogitCalibrator, scorer

# In a checkout the stage folders (train/, export/, ...) lie beside this one and not in it. Without this line the bare
# calibrant/ folder would shadow the installed package whenever the checkout is the working directory.
_root = _os.path.dirname(_os.path.dirname(_os.path.realpath(__file__)))
if _os.path.isfile(_os.path.join(_root, "pyproject.toml")) and _os.path.isfile(
    _os.path.join(_root, "calibration", "__init__.py")
):
    __path__.append(_root)

__all__ = [
    "CalibratedClassifier", "LogitCalibrator", "__version__", "adopt", "compare", "evaluate", "fit", "fit_head", "load",
    "load_predictions", "log_report", "predict", "reliability_diagram", "risk_coverage", "save_run", "scorer", "train",
]  # fmt: skip

_HOMES = {
    "adopt": "api.deployed", "load": "api.deployed",
    "compare": "api.calibrating", "evaluate": "api.calibrating", "fit": "api.calibrating",
    "fit_head": "api.training",
    "load_predictions": "api.prediction", "predict": "api.prediction",
    "reliability_diagram": "api.diagrams", "risk_coverage": "api.diagrams",
    "_train": "api.training", "save_run": "api.saving", "log_report": "api.tracking",
    "CalibratedClassifier": "calibration.estimators", "LogitCalibrator": "calibration.estimators",
    "scorer": "calibration.estimators",
}  # fmt: skip
# Packages, opened by name as well: calibrant.calibration.metrics.ece. `train` can also be called.
_ROOMS = ("calibration", "dashboard", "errors", "export", "plugins", "serve", "train")
# Classes whose base is another library's: made when they are asked for, and listed though it may not be there.
_MADE = {"LightningCallback": "lightning_callback", "TrainerCallback": "trainer_callback"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name in _MADE:
        made = globals()[name] = getattr(import_module(f"{__name__}.api.tracking"), _MADE[name])()
        return made
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name.lstrip("_"))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS, *_MADE})
