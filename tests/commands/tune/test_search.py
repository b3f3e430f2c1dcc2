"""What is measured in the time there is, and what is taken, on numbers given by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from calibrant.commands.tune.candidates import Candidate
from calibrant.commands.tune.measure import Figures
from calibrant.commands.tune.search import Search, Trial, choose
from calibrant.commands.tune.settings import Setting
from calibrant.errors import CheckFailed, ModelError
from calibrant.serve.processes.layout import Layout

from .conftest import candidate

ONE, TWO = Layout(1, 2), Layout(2, 1)


def trial(file: Candidate, layout: Layout, cap: int, rate: float) -> Trial:
    return Trial(file, Setting(layout, cap), Figures(rate, rate, 1.0, 2.0))


class Machine:
    """Gives the rates that it was told, a second of the clock for each."""

    def __init__(self, rates: Mapping[tuple[str, Layout, int], float]) -> None:
        self.rates, self.asked, self.time = rates, [], 0.0  # type: ignore[var-annotated]

    def measure(self, file: Candidate, setting: Setting) -> Figures:
        self.time += 1
        key = (file.name, setting.layout, setting.cap)
        self.asked.append(key)
        if key not in self.rates:
            raise ModelError("the server was not ready")
        rate = self.rates[key] + (5 if self.asked.count(key) > 1 else 0)
        return Figures(rate, rate, 1.0, 2.0)

    def search(self, seconds: float) -> Search:
        return Search(self.measure, lambda file, layout: 4, seconds, clock=lambda: self.time)


RATES = {
    ("fp32", ONE, 4): 80.0, ("fp32", TWO, 4): 150.0, ("fp32", TWO, 2): 160.0, ("fp32", TWO, 8): 90.0,
    ("int8", ONE, 4): 300.0,
}  # fmt: skip


def test_layouts_then_caps_of_the_best_one_then_the_best_again() -> None:
    machine = Machine(RATES)
    files = [candidate("fp32"), candidate("int8", refused="accuracy -5 points")]
    trials = machine.search(60).over(files, [ONE, TWO])
    assert machine.asked == [
        ("fp32", ONE, 4), ("int8", ONE, 4), ("fp32", TWO, 4),
        ("fp32", TWO, 2), ("fp32", TWO, 8), ("fp32", TWO, 1),
        ("fp32", TWO, 2), ("fp32", TWO, 4), ("fp32", TWO, 8), ("fp32", ONE, 4),
    ]  # fmt: skip
    rates = {(t.file.name, t.setting.layout, t.setting.cap): t.rate for t in trials}
    assert rates["fp32", TWO, 2] == 165.0  # the better one of its two
    assert rates["fp32", TWO, 1] == 0.0
    assert next(t for t in trials if not t.rate).error == "the server was not ready"
    assert choose(trials).setting == Setting(TWO, 2)


def test_the_first_layout_is_measured_whatever_the_time_and_the_rest_is_named() -> None:
    machine = Machine(RATES)
    search = machine.search(1)
    trials = search.over([candidate("fp32"), candidate("int8")], [ONE, TWO])
    assert [t.rate for t in trials] == [80.0, 300.0]
    assert search.left_out[:2] == ["fp32 2 x 1", "int8 2 x 1"]
    assert "fp32 1 x 2, cap 2" in search.left_out


def test_a_refused_file_is_never_chosen_however_fast() -> None:
    slow, fast = candidate("fp32"), candidate("int8", refused="loses")
    assert choose([trial(slow, ONE, 4, 100), trial(fast, ONE, 4, 900)]).file is slow


def test_what_is_as_fast_within_a_twentieth_yields_to_what_changes_least() -> None:
    given, made = candidate("fp32"), candidate("int8")
    trials = [trial(given, ONE, 4, 96), trial(given, TWO, 8, 97), trial(given, TWO, 4, 98), trial(made, ONE, 1, 100)]
    assert choose(trials) is trials[0]
    assert choose([trial(given, ONE, 4, 94), *trials[1:]]) is trials[2]
    assert choose([trial(given, TWO, 4, 90), trials[3]]) is trials[3]


def test_where_nothing_answers_in_time_nothing_is_chosen() -> None:
    with pytest.raises(CheckFailed, match="no setting answers in time"):
        choose([Trial(candidate("fp32"), Setting(ONE, 1), Figures(100.0, 0.0, 30.0, 90.0))])
    with pytest.raises(CheckFailed, match=r"no setting answers at all \(no port\)"):
        choose([Trial(candidate("fp32"), Setting(ONE, 1), None, "no port")])
