"""A fitted calibrator: a method, its numbers, and what they were fitted on. Saved as JSON, never as code.

A method is a record of `table.py`: how to fit, and the steps by which its numbers act on logits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.atomic import write_text
from calibrant.calibration.adjustment import checked_ratio
from calibrant.calibration.calibrators.steps import Affine, Step, run
from calibrant.calibration.calibrators.table import form
from calibrant.calibration.inputs import check_logits, finite_logits, ruled_out
from calibrant.calibration.softmax import FLOOR_DEPTH, softmax
from calibrant.errors import ConfigError, DataError, FormatError

FORMAT_VERSION = 3  # 2: with a prior correction, 3: with a mixture's temperature; older readers would leave them out
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Calibrator:
    """`fitted_on`: sha256, rows, date, prior, strength, path (name only). `metrics`: before and after, with intervals.

    `prior` is the correction that stands behind the map, and `class_temperatures` those of the logits before it: the
    file holds the whole formula, which `calibration.formula.Formula` applies. The methods here are the map alone.
    `fit` holds what the fit says about itself: certificate, standard errors, chosen penalties, the comparison of auto.
    """

    method: str
    classes: int
    parameters: Mapping[str, Any]
    fit: Mapping[str, Any] = field(default_factory=dict)
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    conformal: Mapping[str, Any] | None = None
    abstain: Mapping[str, Any] | None = None
    prior: Prior | None = None
    class_temperatures: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        form(self.method).check(self.parameters, self.classes)

    @property
    def reads_features(self) -> bool:
        return form(self.method).reads_features

    def logits(self, logits: ArrayLike, features: NDArray[np.floating[Any]] | None = None) -> Matrix:
        """Calibrated logits (N, C), before any prior adjustment. `features` (N, D): where the map reads them."""
        z = check_logits(logits).astype(np.float64)
        if z.shape[1] != self.classes:
            raise DataError(
                f"logits have {z.shape[1]} classes, the calibrator {self.classes}",
                fix="was it fitted on another model?",
            )
        out = ruled_out(z)
        if not out.any():
            return run(self.steps(), z, features)
        # A class that is ruled out stays so; for the others it counts as the least probable that maps know.
        finite = finite_logits(z, FLOOR_DEPTH).astype(np.float64)
        return np.where(out, -np.inf, run(self.steps(), finite, features))

    def probabilities(
        self,
        logits: ArrayLike,
        features: NDArray[np.floating[Any]] | None = None,
        *,
        log_prior_ratio: ArrayLike | None = None,
        strength: float = 0.0,
    ) -> Matrix:
        """softmax(calibrated logits - strength * log_prior_ratio), (N, C)."""
        zeta = self.logits(logits, features)
        if strength != 0.0:
            if log_prior_ratio is None:
                raise ConfigError(f"adjustment strength {strength} without log_prior_ratio")
            zeta = zeta - strength * checked_ratio(log_prior_ratio, self.classes)
        return softmax(zeta)

    def steps(self) -> tuple[Step, ...]:
        """What makes calibrated logits of the network's, one after another."""
        return form(self.method).steps(self.parameters, self.classes)

    def as_affine(self) -> Affine | None:
        """The map as one affine step; None where it is not affine in the logits."""
        return form(self.method).affine(self.parameters, self.classes)

    def with_context(
        self, *, fitted_on: Mapping[str, Any] | None = None, metrics: Mapping[str, Any] | None = None
    ) -> Calibrator:
        return replace(
            self,
            fitted_on={**self.fitted_on, **(fitted_on or {})},
            metrics=dict(metrics) if metrics is not None else self.metrics,
        )

    def to_dict(self) -> dict[str, Any]:
        shift = None if self.prior is None else self.prior.shift()
        corrects = shift is not None and float(np.ptp(shift)) > 1e-12
        tempered = self.method == "mixture" and "temperature" in self.parameters
        return {
            "kind": "calibrator", "format_version": 3 if tempered else 2 if corrects else 1,
            "method": self.method, "classes": self.classes,
            "parameters": dict(self.parameters), "fit": dict(self.fit), "fitted_on": dict(self.fitted_on),
            "metrics": dict(self.metrics),
            "conformal": None if self.conformal is None else dict(self.conformal),
            "abstain": None if self.abstain is None else dict(self.abstain),
            **({} if self.prior is None else {"prior": asdict(self.prior)}),
            **({} if self.class_temperatures is None else {"class_temperatures": list(self.class_temperatures)}),
        }  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str | Path | None = None) -> Calibrator:
        try:
            block = json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"not JSON ({error})", where=where) from None
        return cls.from_dict(block, where=where)

    @classmethod
    def from_dict(cls, block: Any, *, where: str | Path | None = None) -> Calibrator:
        if not isinstance(block, dict) or block.get("kind") != "calibrator":
            raise FormatError(
                "not a calibrator", where=where, fix="make one with calibrant calibrate PREDS --out calibrator.json"
            )
        version = block.get("format_version")
        if not isinstance(version, int):
            raise FormatError(f"format_version is {version!r}, expected a whole number", where=where)
        if version > FORMAT_VERSION:
            raise FormatError(
                f"calibrator format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
                where=where,
                fix="update calibrant",
            )
        try:
            return cls(
                str(block["method"]),
                int(block["classes"]),
                dict(block["parameters"]),
                dict(block.get("fit", {})),
                dict(block.get("fitted_on", {})),
                dict(block.get("metrics", {})),
                block.get("conformal"),
                block.get("abstain"),
                _prior(block.get("prior"), int(block["classes"])),
                None if (taus := block.get("class_temperatures")) is None else tuple(map(float, taus)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"damaged calibrator ({error!r})", where=where) from None
        except ConfigError as error:
            raise FormatError(error.what, where=where, fix=error.fix) from None

    def save(self, path: str | Path) -> None:
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Calibrator:
        path = Path(path)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise FormatError(f"cannot be read ({error.strerror})", where=path) from None
        return cls.from_json(text, where=path)


def _prior(block: Any, classes: int) -> Prior | None:
    """ValueError where it is no prior of so many classes."""
    if block is None:
        return None
    prior = Prior.from_dict(block)
    for shares in (prior.train, prior.target):
        if shares is not None and (len(shares) != classes or min(shares) < 0 or not 0 < sum(shares) < np.inf):
            raise ValueError(f"prior of {len(shares)} shares for {classes} classes")
    if not np.isfinite([prior.absorbed, prior.applied]).all() or (prior.applied and prior.train is None):
        raise ValueError("prior cannot be what it says")
    return prior
