from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from calibrant.artifacts import feedback
from calibrant.calibration.monitoring.alarms import Alarms, Watch
from calibrant.calibration.monitoring.rolling import LabelledRow
from calibrant.serve.monitor.report import Tally, report, summary
from calibrant.serve.monitor.window import Window

MODEL = feedback.Model("birds", "1", "sha", ("auk", "bittern", "crane", "dunlin"))


def test_an_unused_model_has_alarms_and_no_figures(tiny: ModuleType) -> None:
    body = report(
        MODEL, Tally(0, 0, 0, 0, 0), Window(9, 4, tiny.card()), Alarms(4, Watch()).states(), baseline_rows=0,
        nominal_coverage=None,
    )  # fmt: skip
    assert set(body["alarms"]) == {"calibration", "confidence", "prior"}
    assert not {"expected_accuracy", "labelled"} & set(body)
    assert summary(body)["ece"] is None
    assert body["verdict"]["level"] == summary(body)["verdict"] == "unknown"


def test_figures_have_intervals_and_null_values_and_the_promise_is_held_against_them(tiny: ModuleType) -> None:
    """Nine of ten right at a claimed 0.8; the label-free estimate said 0.8, so it was 0.1 too low."""
    window = Window(100, 4, tiny.card())
    window.answered(np.log(np.tile([0.8, 0.1, 0.05, 0.05], (10, 1))))
    for n in range(10):
        window.labelled(f"r{n}", LabelledRow(0.8, n > 0, 0.2, 0.5))
    body = report(
        MODEL, Tally(10, 10, 7, 0, 2), window, Alarms(4, Watch()).states(), baseline_rows=700, nominal_coverage=0.9,
    )  # fmt: skip
    assert (body["log_rows_lost"], body["window"], body["alarms"]["calibration"]["baseline_rows"]) == (2, 100, 700)
    assert body["predicted_prior"] == pytest.approx({"auk": 0.8, "bittern": 0.1, "crane": 0.05, "dunlin": 0.05})
    labelled = body["labelled"]
    assert labelled["expected_accuracy_error"] == pytest.approx(-0.1)
    assert labelled["nominal_coverage"] == 0.9
    assert labelled["ece"]["value"] == pytest.approx(0.1)
    assert labelled["ece"]["low"] == 0
    assert labelled["ece"]["null"] > 0.05  # of ten rows, chance alone
    assert summary(body)["ece"] == labelled["ece"]
