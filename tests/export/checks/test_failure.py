"""A failed comparison says by how much, and whether the graph or a fusion of the runtime is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from calibrant.export.checks.failure import explain, failure
from calibrant.export.checks.parity import EVERY_LEVEL, Check, Report, Tolerance
from calibrant.export.graph.wrapper import Body

from ..conftest import PREPROCESSING, pixels


def test_the_worst_comparison_is_told_in_numbers() -> None:
    checks = (
        Check("random", 3, "all", 1, 0.002, 0.5, False, False),
        Check("real", 16, "disabled", 1, 1e-7, 1e-7, True, True),
    )
    said = failure(Report(checks, Tolerance(), 1.0, 1.0))
    assert said == (
        "onnxruntime and torch differ by 0.002 in probabilities (allowed 1e-05) and 0.5 of the spread in logits, on "
        "random images in batches of 3 at optimisation level all"
    )


def test_a_fusion_is_told_from_a_wrong_graph(tiny: nn.Module, tmp_path: Path) -> None:
    checks = [Check("random", 1, level, 1, 0.1 if level == "all" else 0.0, 0.0, True, level != "all")
              for level in EVERY_LEVEL]  # fmt: skip
    report = Report(tuple(checks), Tolerance(), 1.0, 1.0)
    body = Body(tiny, PREPROCESSING).eval()
    said = explain(report, tmp_path / "x.onnx", body, torch.from_numpy(pixels(2)))
    assert said == "without optimisation they agree: a fusion at onnxruntime's level all is what differs"
    assert np.isfinite(report.worst.probabilities)
