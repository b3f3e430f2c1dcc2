"""Deployed files as objects: one's own, and those of other exporters taken over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.serve.engine.classifier import Classifier
from calibrant.serve.engine.classifier import load as opened

if TYPE_CHECKING:
    from calibrant.calibration.calibrators import Calibrator as Fitted
    from calibrant.export.adoption.preprocess.declared import Flags


def load(path: str | Path, *, threads: int | None = None, providers: Sequence[str] | None = None) -> Classifier:
    """A deployed .onnx file, ready to predict as the server does.

    `model.predict(pictures)` takes paths, folders, patterns like "new/*.jpg", PIL pictures, encoded bytes, and arrays
    or tensors of any usual type and layout.
    """
    return opened(path, providers=providers, threads=threads)


def adopt(
    foreign: str | Path,
    out: str | Path,
    *,
    classes: Sequence[str] | str | Path,
    preprocess: str | None = None,
    data: str | Path | None = None,
    flags: Flags | None = None,
    calibrator: Fitted | str | Path | None = None,
    **more: Any,
) -> Classifier:
    """Takes over an ONNX classifier of another exporter: writes `out`, proved to answer alike, and opens it.

    classes: names in the order of the outputs, or a file of them. preprocess: a preprocessor_config.json, a timm
    config, "timm:NAME" or "torchvision:NAME". data: pictures to prove it on. `more` is for `calibrant.export.adopt`.
    """
    from calibrant.export.adoption.adopt import adopt as adopting
    from calibrant.export.edit import recalibrate

    adopting(foreign, out, classes=classes, preprocess=preprocess, data=data, flags=flags, **more)
    if calibrator is not None:
        from calibrant.calibration.calibrators import Calibrator

        recalibrate(out, calibrator if isinstance(calibrator, Calibrator) else Calibrator.load(calibrator))
    return opened(out)
