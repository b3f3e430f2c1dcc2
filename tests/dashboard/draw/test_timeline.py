"""What the time line is made of."""

from __future__ import annotations

import pandas as pd

from calibrant.dashboard.draw import timeline
from calibrant.dashboard.theme import LIGHT


def table(accuracy: float | None) -> pd.DataFrame:
    row = {
        "time": pd.Timestamp("2026-01-01"), "from": 1, "row": 50, "expected": 0.8, "low": 0.7, "high": 0.9,
        "labelled": 20, "accuracy": accuracy, "accuracy_low": accuracy, "accuracy_high": accuracy,
    }  # fmt: skip
    return pd.DataFrame([row]).astype({"accuracy": float})


def marks(drawn: dict) -> list[str]:  # type: ignore[type-arg]
    return [layer["mark"]["type"] for layer in drawn["layer"]]


def test_the_span_of_an_alarm_is_shaded_with_a_rule_at_either_end() -> None:
    none = pd.DataFrame(columns=["began", "fired", "text"])
    event = pd.DataFrame([{"began": pd.Timestamp("2026-01-01"), "fired": pd.Timestamp("2026-01-02"), "text": "x"}])
    quiet = timeline.timeline(table(0.5), none, colours=LIGHT, title="").to_dict()
    assert marks(quiet) == ["area", "line", "point", "rule", "point"]
    loud = timeline.timeline(table(0.5), event, colours=LIGHT, title="").to_dict()
    assert marks(loud) == ["rect", "rule", "rule", *marks(quiet)]


def test_without_labels_nothing_came_true() -> None:
    none = pd.DataFrame(columns=["began", "fired", "text"])
    assert marks(timeline.timeline(table(None), none, colours=LIGHT, title="").to_dict()) == ["area", "line", "point"]
