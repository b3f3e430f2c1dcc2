"""Predictions as they are, or through a calibrator: what the numbers of a page are about."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.calibration.formula import Formula
from calibrant.dashboard.folder.artifacts import CalibratorRef, PredictionsRef
from calibrant.dashboard.folder.files import Stamp, stamp, stamps


@dataclass(frozen=True)
class Scored:
    """Hashable by what lies on disk, so that results can be kept."""

    files: tuple[Stamp, ...]
    path: PredictionsRef
    calibrator: CalibratorRef | None
    calibrator_file: Stamp | None

    @classmethod
    def of(cls, predictions: PredictionsRef, calibrator: CalibratorRef | None = None) -> Scored:
        return cls(
            stamps(predictions.path), predictions, calibrator, None if calibrator is None else stamp(calibrator.path)
        )

    def formula(self) -> Formula:
        """The whole formula behind the numbers, as `calibrant evaluate` applies it."""
        calibrator = None if self.calibrator is None else self.calibrator.calibrator
        return Formula.of(calibrator, self.path.source)

    def __hash__(self) -> int:
        return hash((self.files, self.calibrator_file))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scored) and (self.files, self.calibrator_file) == (other.files, other.calibrator_file)
