"""Predictions as they are, through a calibrator, or as a deployed file answers: what numbers are about."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.calibration.formula import Formula
from calibrant.dashboard.folder.artifacts import CalibratorRef, Model, PredictionsRef
from calibrant.dashboard.folder.files import Stamp, stamp, stamps


@dataclass(frozen=True)
class Scored:
    """Hashable by what lies on disk, so that results can be kept."""

    files: tuple[Stamp, ...]
    path: PredictionsRef
    through: CalibratorRef | Model | None
    through_file: Stamp | None

    @classmethod
    def of(cls, predictions: PredictionsRef, through: CalibratorRef | Model | None = None) -> Scored:
        return cls(stamps(predictions.path), predictions, through, None if through is None else stamp(through.path))

    def formula(self) -> Formula:
        """The whole formula behind the numbers, as `calibrant evaluate` and the server apply it."""
        if isinstance(self.through, Model):
            return Formula.of_card(self.through.card)
        return Formula.of(None if self.through is None else self.through.calibrator, self.path.source)

    def plain(self) -> Scored:
        """The same rows as the network says them."""
        return self if self.through is None else Scored(self.files, self.path, None, None)

    def __hash__(self) -> int:
        return hash((self.files, self.through_file))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scored) and (self.files, self.through_file) == (other.files, other.through_file)
