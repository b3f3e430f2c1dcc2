"""One record per metric: everything that shows metrics is made from the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import evaluate
from calibrant.calibration.metrics.table import METRICS, Metric, metric
from calibrant.errors import ConfigError

DOCS = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.dirichlet([0.4] * 7, 400), rng.integers(0, 7, 400)


def test_evaluate_measures_what_the_table_lists_and_nothing_else(rows: tuple[np.ndarray, np.ndarray]) -> None:
    measured = set(evaluate(*rows).metrics) - {"mean_confidence"}  # no quality: neither way is better
    assert measured == {m.key for m in METRICS}


@pytest.mark.parametrize("m", METRICS, ids=lambda m: m.key)
def test_the_function_of_a_record_gives_the_value_that_evaluate_measures(
    m: Metric, rows: tuple[np.ndarray, np.ndarray]
) -> None:
    assert evaluate(*rows).metrics[m.key].value == pytest.approx(m.function(*rows), abs=1e-9)


def test_keys_and_names_are_told_apart() -> None:
    assert len({m.key for m in METRICS}) == len({m.name for m in METRICS}) == len(METRICS)
    assert {m.part_of for m in METRICS} - {None} <= {m.key for m in METRICS}


def test_a_title_names_the_unit_and_the_moment() -> None:
    assert metric("ece").title("after") == "ECE after (%)"
    assert metric("balanced_accuracy").title() == "Balanced accuracy (%)"
    assert (metric("nll").title(), metric("nll").scale, metric("ece").scale) == ("NLL", 1.0, 100.0)


def test_an_unknown_key_is_refused_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="adaptive_ece"):
        metric("adaptive-ece")


def test_the_docs_hold_the_table_as_it_is() -> None:
    text = DOCS.read_text()
    lines = [f"| `{m.key}` | {m.name} | {m.unit} | {m.better} | {m.meaning} |" for m in METRICS]
    assert "\n".join(lines) in text, "copy these lines into docs/metrics.md:\n" + "\n".join(lines)
