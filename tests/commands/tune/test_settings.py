"""Which settings are worth a measurement."""

from __future__ import annotations

from calibrant.commands.tune.settings import Setting, caps_beside, layouts
from calibrant.serve.processes.layout import Layout


def test_the_servers_own_choice_comes_first_and_no_layout_takes_more_cores_than_there_are() -> None:
    found = [(one.workers, one.threads) for one in layouts(8, first=Layout(4, 2))]
    assert found == [(4, 2), (1, 8), (2, 4), (8, 1), (1, 1)]
    assert [(one.workers, one.threads) for one in layouts(6, first=Layout(6, 1))] == [
        (6, 1),
        (1, 6),
        (2, 3),
        (4, 1),
        (1, 1),
    ]
    assert layouts(1, first=Layout(1, 1)) == [Layout(1, 1)]


def test_a_gpu_is_shared_by_two_processes_at_most() -> None:
    assert [one.workers for one in layouts(16, first=Layout(1, 16), gpu=True)] == [1, 2]


def test_caps_beside_the_measured_one_are_half_double_and_one() -> None:
    assert caps_beside(8) == [4, 16, 1]
    assert caps_beside(1) == [2]
    assert caps_beside(2) == [1, 4]
    assert caps_beside(64) == [32, 1]


def test_a_setting_says_itself() -> None:
    assert str(Setting(Layout(2, 4), 16)) == "2 x 4, cap 16"
