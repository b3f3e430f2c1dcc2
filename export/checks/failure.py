"""Why a file does not say what the network says: by how much, and which node or fusion differs first."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from calibrant.export.checks.locate import first_difference
from calibrant.export.checks.parity import EVERY_LEVEL, Report
from calibrant.export.graph.wrapper import Body

log = logging.getLogger(__name__)


def failure(report: Report) -> str:
    worst = report.worst
    return (
        f"onnxruntime and torch differ by {worst.probabilities:.2g} in probabilities (allowed "
        f"{report.tolerance.probabilities:.0e}) and {worst.logits:.2g} of the spread in logits, on {worst.images} "
        f"images in batches of {worst.batch} at optimisation level {worst.level}"
    )


def explain(report: Report, path: Path, traced: Body, example: torch.Tensor) -> str:
    """Which node differs first, or which optimisation level of onnxruntime brings the difference in."""
    passed = {level: all(c.passed for c in report.checks if c.level == level) for level in EVERY_LEVEL}
    tried = {c.level for c in report.checks}
    if "disabled" in tried and passed["disabled"]:
        level = next(v for v in reversed(EVERY_LEVEL) if v in tried and not passed[v])
        return f"without optimisation they agree: a fusion at onnxruntime's level {level} is what differs"
    try:
        found = first_difference(path, traced, example)
    except Exception as error:  # a second failure must not hide the first
        log.debug("could not locate the difference", exc_info=error)
        return "the node that differs could not be located"
    return (
        str(found)
        if found is not None
        else "every value of the network agrees, so the classifier or what follows differs"
    )
