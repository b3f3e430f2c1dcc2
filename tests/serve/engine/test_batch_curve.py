"""A batch size is chosen from measured runs; one run alone says nothing of batching."""

from __future__ import annotations

import time

import pytest

from calibrant.serve.engine.batch_curve import BatchCurve, BatchPoint, measure


class Timer:
    """Runs that take what `seconds` says; the clock goes on by five runs where there is time for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float]) -> None:
        self.seconds, self.now, self.asked = seconds, 1000.0, list[int]()
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def __call__(self, rows: int, deadline: float) -> float:
        self.asked.append(rows)
        for _ in range(5):
            self.now += self.seconds[rows]
            if self.now > deadline:
                break
        return self.seconds[rows]


def dense(one: float) -> dict[int, float]:
    """Reading the weights is most of the work: 8 rows take little longer than one."""
    return {n: one * (1 + 0.04 * n) for n in (1, 2, 4, 8, 16, 32, 64)}


def test_a_model_that_uses_up_the_time_with_one_row_is_measured_with_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch, dense(0.15))
    found = measure(timer)
    assert sorted(set(timer.asked)) == [1, 8]
    assert timer.asked.count(8) == 1
    assert (found.cap, found.whole) == (8, False)


@pytest.mark.parametrize(("one", "larger"), [(0.25, 8), (0.4, 4), (0.9, 2), (5.0, 2)])
def test_the_second_size_is_what_two_seconds_allow(monkeypatch: pytest.MonkeyPatch, one: float, larger: int) -> None:
    timer = Timer(monkeypatch, {n: n * one for n in (1, 2, 4, 8)})
    found = measure(timer)
    assert timer.asked[-1] == larger
    assert found.cap == 1


def test_a_curve_that_was_cut_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = measure(Timer(monkeypatch, dense(0.02)))
    assert not cut.whole
    assert cut.said().endswith("larger ones are tried while serving")
    whole = measure(Timer(monkeypatch, dense(1e-4)))
    assert whole.whole
    assert (whole.cap, [p.rows for p in whole.points]) == (64, [1, 2, 4, 8, 16, 32, 64])


def test_the_smallest_size_near_the_best_is_taken() -> None:
    assert BatchCurve((BatchPoint(1, 1.0), BatchPoint(2, 1.0), BatchPoint(4, 1.99))).cap == 2
    assert BatchCurve((BatchPoint(1, 1.0), BatchPoint(2, 1.0), BatchPoint(4, 1.9))).cap == 4
    assert BatchCurve().cap == 1


def test_a_point_replaces_that_of_its_size() -> None:
    curve = BatchCurve((BatchPoint(1, 1.0), BatchPoint(4, 9.0)), False)
    curve = curve.with_point(BatchPoint(2, 1.5), whole=False).with_point(BatchPoint(4, 2.0), whole=True)
    assert curve == BatchCurve((BatchPoint(1, 1.0), BatchPoint(2, 1.5), BatchPoint(4, 2.0)), True)
    assert BatchCurve((BatchPoint(1, 0.15), BatchPoint(8, 0.2))).said() == "1: 6.67/s, 8: 40/s"
