"""Mean ranks of compared runs, by hand."""

from __future__ import annotations

from calibrant.calibration import Measured
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.views.comparison import ranks


def line(accuracy: float, nll: float, ece: float, after: float | None) -> Summary:
    return Summary(100, 100.0, Measured(accuracy), accuracy, nll, Measured(ece), None, after and Measured(after), None)


def test_ranks_count_from_the_best_and_ties_share_their_places() -> None:
    table = ranks({
        "a": line(0.9, 1.0, 0.05, 0.02), "b": line(0.8, 0.5, 0.05, 0.01), "c": line(0.7, 2.0, 0.10, 0.03),
    })  # fmt: skip
    assert table["Run"].tolist() == ["a", "b", "c"]  # equal mean ranks stay in order
    by_run = table.set_index("Run")
    assert by_run["Rank: Accuracy (%)"].to_dict() == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert by_run["Rank: NLL"].to_dict() == {"a": 2.0, "b": 1.0, "c": 3.0}
    assert by_run["Rank: ECE (%)"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}
    # Accuracy, balanced accuracy (the same here), NLL, ECE, ECE after.
    assert by_run["Mean rank"].to_dict() == {"a": (1 + 1 + 2 + 1.5 + 2) / 5, "b": (2 + 2 + 1 + 1.5 + 1) / 5, "c": 3.0}
    assert by_run.loc["a", "Accuracy (%)"] == 90.0


def test_a_number_that_one_run_lacks_is_shown_but_not_ranked() -> None:
    table = ranks({"a": line(0.9, 1.0, 0.05, None), "b": line(0.8, 0.5, 0.06, 0.01)})
    assert "ECE after (%)" in table
    assert "Rank: ECE after (%)" not in table
