"""What is judged: everything that an evaluation knows about one model."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.calibration.evaluation import Evaluation
from calibrant.calibration.populations import Shift
from calibrant.calibration.statistics.statistics import Statistics


@dataclass(frozen=True)
class Case:
    """`shift`: between the class shares that the confidence is meant for and those of the rows that judge it."""

    evaluation: Evaluation
    statistics: Statistics
    in_sample: bool = False  # judged on the rows that its calibrator was fitted on
    shift: Shift | None = None
