"""Does the confidence tell right from wrong at all? If not, no calibrator mends it."""

from __future__ import annotations

from calibrant.calibration.evaluation import Evaluation
from calibrant.calibration.verdict.verdict import Cause
from calibrant.calibration.verdict.words import figure

_HARDLY = 0.55  # an AUROC that is surely below sorts hardly better than chance


def ranking_cause(e: Evaluation) -> Cause | None:
    """Two signs: an AUROC not above chance that is surely less than half as far above it as the claims promise (or
    surely below .55), and an accuracy that is surely near chance.

    Each asks for the far end of a 95 % interval, so that few rows are no evidence.
    """
    auroc, accuracy = e.metrics["auroc"], e.metrics["accuracy"]
    chance = 1.0 / e.classes
    near = chance + max(min(chance, 0.1), 0.01)
    if accuracy.low is not None and accuracy.high is not None and accuracy.low <= chance and accuracy.high <= near:
        return Cause(
            "ranking",
            f"Its guesses are hardly better than chance: {figure(accuracy.value)} % right with {e.classes:,} classes. "
            "No calibrator mends that; are the classes in the right order, and the pictures of these classes?",
            {"accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "chance": chance},
        )
    if auroc.low is None or auroc.high is None or auroc.low > 0.5:
        return None
    promised = auroc.null if auroc.null is not None else 0.5
    if auroc.high >= (0.5 + promised) / 2 and auroc.high > _HARDLY:
        return None
    return Cause(
        "ranking",
        "Its confidence does not tell right rows from wrong ones: a right one is the more confident in "
        f"{100 * auroc.value:.0f} of 100 pairs, and 50 is chance. No calibrator mends that; another model may.",
        {"auroc": auroc.value, "low": auroc.low, "high": auroc.high, "promised": promised},
    )
