"""The joined table: differences with the noise that they have, marks only where they are clear."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.train.jobs.rows import pack_rows
from calibrant.train.study.joined import Entry, join, marks, paired, ranks
from calibrant.train.study.score import Score, values

METRICS = ("accuracy", "nll", "brier", "ece", "adaptive_ece")
COUNTS = np.full(4, 100)


def scores(gain: float, seeds: int = 4, draw: int = 0, rows: int = 600) -> dict[int, Score]:
    """A model that is better by `gain`, on the same images in every seed."""
    labels = np.random.default_rng(99).integers(0, 4, rows)
    easy = np.random.default_rng(98).normal(size=(rows, 4))
    found = {}
    for seed in range(seeds):
        z = easy + np.random.default_rng(draw + seed).normal(size=(rows, 4)) + (1 + gain) * np.eye(4)[labels]
        probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        found[seed] = Score(values(probs, labels, COUNTS, METRICS), pack_rows(probs, labels, COUNTS, None))
    return found


def test_a_method_that_is_the_reference_under_another_name_differs_by_0_and_the_interval_holds_0() -> None:
    block = join([Entry("ce", scores(0.0)), Entry("twin", scores(0.0))], METRICS, reference="ce", data="d",
                 network="n", view="")  # fmt: skip
    assert block is not None
    for metric in METRICS:
        twin = block.lines[1].estimates[metric]
        assert (twin.difference, twin.low, twin.high) == (0.0, 0.0, 0.0)
        assert twin.noise == "none"
        assert twin.mark == block.lines[0].estimates[metric].mark == ""
        assert twin.rank == block.lines[0].estimates[metric].rank == 1.5  # ties share their rank


def test_a_clear_lead_is_marked_and_a_tie_is_not() -> None:
    entries = [Entry("ce", scores(0.0)), Entry("better", scores(2.0)), Entry("same", scores(0.0, draw=100))]
    assert marks(entries, "nll", range(4)) == {"better": "best"}
    block = join(entries, METRICS, reference="ce", data="d", network="n", view="")
    assert block is not None
    better = block.lines[1].estimates["accuracy"]
    assert better.mark == "best"
    assert better.low is not None
    assert better.low > 0
    assert better.noise == "seeds and images"


def test_what_is_no_mean_over_rows_knows_the_seeds_alone() -> None:
    """Student's interval by hand: mean +- t(3, .975) s / 2 = 3.182 s / 2."""
    one, other = Entry("one", scores(0.5)), Entry("ce", scores(0.0))
    mean, low, high, noise = paired(one, other, "adaptive_ece", range(4))
    d = [one.scores[s].metrics["adaptive_ece"] - other.scores[s].metrics["adaptive_ece"] for s in range(4)]
    assert noise == "seeds"
    assert mean == pytest.approx(np.mean(d))
    assert (low, high) == pytest.approx((np.mean(d) - 3.18245 * np.std(d, ddof=1) / 2,
                                         np.mean(d) + 3.18245 * np.std(d, ddof=1) / 2), rel=1e-5)  # fmt: skip


def test_one_seed_says_that_it_knows_images_alone() -> None:
    _, low, high, noise = paired(Entry("a", scores(1.0, 1)), Entry("ce", scores(0.0, 1)), "nll", [0])
    assert noise == "images"
    assert low is not None
    assert high is not None
    assert paired(Entry("a", scores(1.0, 1)), Entry("ce", scores(0.0, 1)), "adaptive_ece", [0])[1:] == (None, None, "")


def test_ranks_are_means_over_seeds_the_best_is_1() -> None:
    found = ranks([Entry("ce", scores(0.0)), Entry("better", scores(2.0))], "ece", range(4))
    lower = ranks([Entry("ce", scores(0.0)), Entry("better", scores(2.0))], "nll", range(4))
    assert found["ce"][0] + found["better"][0] == 3.0
    assert lower == {"ce": (2.0, 2.0, 2.0), "better": (1.0, 1.0, 1.0)}


def test_a_control_stands_beside_and_is_neither_ranked_nor_marked() -> None:
    entries = [Entry("ce", scores(0.0)), Entry("best of all", scores(5.0), control="ce: why")]
    block = join(entries, METRICS, reference="ce", data="d", network="n", view="")
    assert block is not None
    control = block.lines[1].estimates["nll"]
    assert (control.rank, control.mark) == (None, "")
    assert control.difference is not None
    assert control.difference < 0


def test_all_methods_are_compared_on_the_seeds_that_all_of_them_have() -> None:
    short = {s: v for s, v in scores(1.0).items() if s != 3}
    entries = [Entry("ce", scores(0.0)), Entry("late", short), Entry("not begun", {})]
    block = join(entries, METRICS, reference="ce", data="d", network="n", view="")
    assert block is not None
    assert block.seeds == (0, 1, 2)
    assert [line.method for line in block.lines] == ["ce", "late"]
    assert join([Entry("ce", {})], METRICS, reference="ce", data="d", network="n", view="") is None
