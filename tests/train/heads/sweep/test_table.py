"""The table of a sweep: chosen on validation, judged on test rows, with both noises in the interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant.train.heads.scores import METRICS
from calibrant.train.heads.sweep.table import SweepTable, holm, make_table
from calibrant.train.jobs.rows import pack_rows

LABELS = (np.arange(200) % 2).astype(np.int64)


def right(rows: set[int]) -> dict[str, Any]:
    """A run that is right in these rows only."""
    probs = np.full((200, 2), 0.1)
    predicted = np.where(np.isin(np.arange(200), list(rows)), LABELS, 1 - LABELS)
    probs[np.arange(200), predicted] = 0.9
    return pack_rows(probs, LABELS, np.asarray([9, 9]), None)


def run(variant: str, seed: int, value: float, val: float | None = None, rows: Any = None) -> dict[str, Any]:
    test = dict.fromkeys(METRICS, 0.0) | {"accuracy": value, "ece": 1 - value}
    chosen = test | {"accuracy": value if val is None else val, "ece": 1 - value}
    return {
        "variant": variant, "seed": seed, "val": chosen, "test": test, "test_rows": rows, "total_strength": 1.0,
        "seconds": 1.0,
    }  # fmt: skip


def table(rows: list[dict[str, Any]], metric: str = "accuracy", **options: Any) -> SweepTable:
    names = list(dict.fromkeys(["baseline", *(r["variant"] for r in rows)]))
    return make_table(rows, names, baseline="baseline", metric=metric, overrides={}, **options)


def words(made: SweepTable) -> str:
    return " ".join(made.text().split())


def test_holm_by_hand() -> None:
    # sorted .01, .02, .04: times 3, 2, 1 = .03, .04, .04
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_pairs_by_seed_and_sorts_by_the_metric() -> None:
    rows = [run("baseline", 1, 0.5), run("baseline", 0, 0.3), run("bad", 0, 0.2), run("bad", 1, 0.4),
            run("good", 0, 0.5), run("good", 1, 0.8)]  # fmt: skip
    made = table(rows)
    assert [line.variant for line in made.lines] == ["baseline", "good", "bad"]
    assert made.lines[1].metrics["accuracy"].delta == pytest.approx(0.25)
    assert "| good | 0.6500 | 0.6500 | +0.2500 | none | none |" in made.markdown()
    assert [line.variant for line in table(rows, "ece").lines] == ["baseline", "good", "bad"]
    assert "<td>good</td>" in made.html()


def test_test_rows_are_shown_and_never_chosen_on_unless_asked() -> None:
    rows = [run("baseline", 0, 0.5), run("lucky", 0, 0.9, val=0.4), run("sound", 0, 0.6, val=0.6)]
    assert [line.variant for line in table(rows).lines] == ["baseline", "sound", "lucky"]
    asked = table(rows, rank_by="test")
    assert [line.variant for line in asked.lines] == ["baseline", "lucky", "sound"]
    assert "no test any more" in words(asked)


def test_the_interval_is_of_seeds_and_test_images() -> None:
    base, better = right(set(range(100))), right(set(range(110)))
    rows = [run("baseline", s, 0.5, rows=base) for s in range(3)] + [run("b", s, 0.55, rows=better) for s in range(3)]
    made = table(rows)
    d = made.lines[1].metrics["accuracy"]
    assert d.low is not None
    assert d.high is not None
    # Ten of 200 rows: mean .05, variance .05 * .95 * 200 / 199; the seeds are alike, so it is the images' interval.
    half = 1.9719565 * (0.05 * 0.95 / 199) ** 0.5
    assert (d.low, d.high) == pytest.approx((0.05 - half, 0.05 + half), rel=1e-6)
    assert made.images == 200
    assert "two-way t over 3 seeds and 200 test images" in words(made)


def test_one_seed_speaks_of_these_two_heads_only() -> None:
    made = table([run("baseline", 0, 0.5, rows=right(set(range(100)))), run("b", 0, 0.55, rows=right(set(range(110))))])
    assert made.lines[1].metrics["accuracy"].low is not None
    assert "of these two trained heads, not of the methods" in words(made)


def test_the_same_predictions_twice_have_no_interval_and_no_p() -> None:
    same = right(set(range(100)))
    rows = [run(name, s, 0.5, rows=same) for name in ("baseline", "twin") for s in range(3)]
    d = table(rows).lines[1]
    assert (d.metrics["accuracy"].low, d.metrics["accuracy"].p, d.p_holm) == (None, None, None)


def test_without_rows_there_is_no_interval_and_it_is_said_why() -> None:
    made = table([run(name, s, 0.5 + 0.1 * (name == "b")) for name in ("baseline", "b") for s in range(3)])
    assert made.lines[1].metrics["accuracy"].low is None
    assert "No intervals" in words(made)
    assert "kept no rows" in words(made)
