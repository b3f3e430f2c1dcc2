"""A new calibrator from served traffic and the labels that have arrived, and a new deployed file that holds it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback import Served
from calibrant.artifacts.feedback_logits import CUT, refuse_cut
from calibrant.calibration import Calibrator, Evaluation, evaluate, fit
from calibrant.calibration.compare import Difference, compare
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of, statistics_of_probabilities
from calibrant.dashboard.folder.artifacts import Model
from calibrant.dashboard.folder.files import Stamp, stamp
from calibrant.dashboard.jobs import command_line, environment
from calibrant.errors import CalibrantError, DataError, ModelError
from calibrant.serve.engine.deployed_formula import DeployedFormula

FEWEST_LABELS = 50
_SECONDS = 300
_MOST = 8  # trials that are kept


@dataclass(frozen=True)
class Trial:
    """What recalibrating would bring: fitted on the older half of the labelled rows, judged on the newer half."""

    fitted_rows: int
    judged_rows: int
    before: Evaluation
    after: Evaluation
    change: Mapping[str, Difference]  # on these, row by row, with paired intervals
    calibrator: Calibrator  # fitted on all labelled rows
    old_temperature: float | None

    @property
    def helps(self) -> bool:
        """Surely: by the NLL, a proper score."""
        return self.change["nll"].clear and self.change["nll"].difference < 0


@dataclass(frozen=True)
class Written:
    calibrator: Path
    model: Path


_tried: dict[tuple[object, ...], Trial] = {}


def tried(model: Model, served: Served, files: tuple[Stamp, ...]) -> Trial:
    """`try_out`, kept as long as the log and the file are what they are."""
    key = (files, stamp(model.path), served.model.sha256)
    if key not in _tried:
        if len(_tried) >= _MOST:
            _tried.clear()
        _tried[key] = try_out(model, served)
    return _tried[key]


def try_out(model: Model, served: Served) -> Trial:
    """Undoes what the file did to the network's logits, and fits the temperature anew, inside the file's prior term."""
    order = np.argsort(served.times, kind="stable")
    known = order[served.labels[order] >= 0]
    if len(known) < FEWEST_LABELS:
        raise DataError(
            f"{len(known)} labels are too few to recalibrate",
            where=served.model.name,
            fix=f"wait for {FEWEST_LABELS} of them",
        )
    refuse_cut({CUT: served.cut}, None, "recalibrating")
    raw = DeployedFormula.of(model.card).raw(served.logits[known])
    if raw is None:
        method = (model.card.calibrator or {}).get("method")
        raise ModelError(
            f"the file's calibrator ({method}) cannot be undone, so the network's own logits are not known",
            where=model.name,
            fix="collect predictions with calibrant predict RUN and use calibrant calibrate",
        )
    labels = served.labels[known]
    half = len(known) // 2
    trial = _fit(model, raw[:half], labels[:half])
    after = _probabilities(model, trial, raw[half:])
    calibrator = _fit(model, raw, labels).with_context(
        fitted_on={
            "path": "feedback log",
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "model": {"name": served.model.name, "version": served.model.version, "onnx_sha256": served.model.sha256},
        }
    )
    parameters: Any = (model.card.calibrator or {}).get("parameters") or {}
    return Trial(
        half,
        len(known) - half,
        evaluate(statistics_of(served.logits[known[half:]], labels[half:])),
        evaluate(statistics_of_probabilities(after, labels[half:])),
        compare(softmax(served.logits[known[half:]].astype(np.float64)), after, labels[half:]),
        calibrator,
        parameters.get("temperature"),
    )


def _fit(model: Model, logits: NDArray[np.float64], labels: NDArray[np.int64]) -> Calibrator:
    shift = model.card.prior.shift()
    if shift is None:
        return fit("temperature", logits, labels)
    return fit("temperature", logits, labels, log_prior_ratio=shift, strength=1.0)


def _probabilities(model: Model, calibrator: Calibrator, logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shift = model.card.prior.shift()
    if shift is None:
        return calibrator.probabilities(logits)
    return calibrator.probabilities(logits, log_prior_ratio=shift, strength=1.0)


def write(model: Model, trial: Trial) -> Written:
    """Two new files beside the deployed one, which stays. `calibrant recalibrate` makes the model and checks it."""
    stem = f"{model.path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    calibrator, out = (model.path.with_name(f"{stem}{end}") for end in ("-calibrator.json", ".onnx"))
    if calibrator.exists() or out.exists():
        raise DataError("was written a moment ago", where=out.name)
    trial.calibrator.save(calibrator)
    command = command_line(["recalibrate", str(model.path), str(calibrator), "--out", str(out)])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment(),
            cwd=model.path.parent,
        )
    except subprocess.TimeoutExpired:
        calibrator.unlink(missing_ok=True)
        raise ModelError(f"calibrant recalibrate took more than {_SECONDS} s", where=model.name) from None
    if done.returncode != 0:
        calibrator.unlink(missing_ok=True)
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise CalibrantError(last[0].removeprefix("Error: "), where=model.name)
    return Written(calibrator, out)
