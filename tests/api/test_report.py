"""A report hands on what evaluation found."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import calibrant
from calibrant.api.report import Report


@pytest.fixture(scope="module")
def report() -> Report:
    rng = np.random.default_rng(0)
    return calibrant.evaluate(rng.normal(size=(200, 3)) * 2, rng.integers(0, 3, 200), name="<mine>")


def test_the_page_is_escaped_and_whole(report: Report) -> None:
    page = report._repr_html_()
    assert "&lt;mine&gt;" in page
    assert "ECE" in page
    assert page.count("<tr>") == len(report.metrics) - 1 + 1  # all but mean_confidence, and the heads


def test_it_can_be_copied(report: Report) -> None:
    assert copy.copy(report).ece == report.ece
    assert not hasattr(report, "_ipython_canary_method_should_not_exist_")
