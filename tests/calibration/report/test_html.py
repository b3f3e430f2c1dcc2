"""The HTML report marks the best of several models only where best means something."""

from __future__ import annotations

import re

import numpy as np
import pytest

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.figures import Model
from calibrant.calibration.report.html import html_report
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.verdict import Cause, Remedy, Verdict


@pytest.fixture(scope="module")
def page() -> str:
    """Two models of the same rows, one surer than the other: each differs in every metric."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 6, 600)
    models = []
    for name, scale in (("mild", 1.0), ("sharp", 4.0)):
        z = scale * (rng.normal(size=(600, 6)) + 1.5 * np.eye(6)[labels])
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        statistics = statistics_of_probabilities(p, labels)
        models.append(Model(name, evaluate(statistics), statistics))
    return html_report(models, title="Two", bins=15, made="today")


def marked(page: str, name: str) -> int:
    row = next(
        r for r in re.findall(r"<tr>.*?</tr>", page, re.S) if re.search(rf"<td[^>]*>{re.escape(name)}<small>", r)
    )
    return row.count('class="best"')


@pytest.mark.parametrize("name", ["accuracy", "NLL", "Brier score", "ECE", "adaptive ECE", "AURC", "failure AUROC"])
def test_the_best_of_two_models_is_marked_once(page: str, name: str) -> None:
    assert marked(page, name) == 1


@pytest.mark.parametrize("name", ["over-confident part", "under-confident part", "debiased RMS error", "MCE"])
def test_a_half_of_the_error_or_mostly_noise_crowns_nobody(page: str, name: str) -> None:
    assert marked(page, name) == 0


def test_every_metric_of_the_table_has_a_row(page: str) -> None:
    assert [m.name for m in METRICS if f"{m.name}<small>" not in page] == []


def test_what_is_used_is_judged_first_and_what_it_was_before_in_one_line() -> None:
    statistics = statistics_of_probabilities(np.tile([0.9, 0.1], (50, 1)), np.arange(50) % 2)
    causes = tuple(Cause("class", f"Cause {k}.") for k in range(7))
    remedy = Remedy("recalibrate", "calibrant calibrate <x>", "Fit anew.")
    plain, used = (
        Model(
            name, evaluate(statistics), statistics, verdict=Verdict("care", f"{name}!", causes, (remedy,)), reference=r
        )
        for name, r in (("plain", True), ("used", False))
    )
    page = html_report([plain, used], title="T", bins=15, made="today")
    assert page.index("used!") < page.index("plain, as it was: plain!") < page.index("<h2>Reliability")
    assert page.count("Cause 0.") == page.count("Cause 4.") == page.count("calibrant calibrate &lt;x&gt;") == 1
    assert "Cause 5." not in page
    assert "and 2 more, see the JSON" in page
