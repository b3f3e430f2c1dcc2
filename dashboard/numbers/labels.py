"""Independent labels, each measured by itself: what `calibrant evaluate` says of them, kept while the files stay."""

from __future__ import annotations

import threading
from functools import lru_cache

from calibrant.calibration.diagrams.reliability import ReliabilityDiagram, diagram_of_bins
from calibrant.calibration.independent.files import LabelsModel, evaluate_labels
from calibrant.calibration.independent.measure import LabelFigures
from calibrant.dashboard.folder.artifacts import CalibratorRef
from calibrant.dashboard.numbers.measures import DEFAULT_BINS
from calibrant.dashboard.numbers.predictions_through import Scored

_measuring = threading.Lock()


def measured(scored: Scored, bins: int = DEFAULT_BINS) -> tuple[LabelsModel, ...]:
    """The predictions as they are and, where there is a calibrator, through it. Takes seconds for many labels."""
    with _measuring:  # two readers of one page ask at the same moment; one pass is enough
        return _measured(scored, bins)


@lru_cache(32)
def _measured(scored: Scored, bins: int) -> tuple[LabelsModel, ...]:
    through = scored.through
    calibrators = [through.path] if isinstance(through, CalibratorRef) else []
    return tuple(evaluate_labels([scored.path.path], calibrators, bins=bins))


def diagram(label: LabelFigures) -> ReliabilityDiagram:
    """Claimed probability of the label against the share of rows that have it."""
    return diagram_of_bins(label.bins)


def worst_first(model: LabelsModel) -> list[LabelFigures]:
    """Labels with the largest error first, those that cannot be measured last."""
    return sorted(model.evaluation.labels, key=lambda x: -x.metrics["ece"].value if x.metrics else 1.0)
