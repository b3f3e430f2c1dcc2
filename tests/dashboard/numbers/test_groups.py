"""Which rows a diagram is about."""

from __future__ import annotations

from calibrant.artifacts.predictions import Source
from calibrant.dashboard.numbers.groups import selections


def test_all_rows_then_groups_then_each_class_can_be_chosen() -> None:
    found = selections(Source(("ash", "birch", "elm"), (0.6, 0.3, 0.1)))
    assert [s.key for s in found] == ["all", "head", "medium", "tail", "class-0", "class-1", "class-2"]
    assert [s.classes for s in found] == [None, (0,), (1,), (2,), (0,), (1,), (2,)]
    assert found[3].label == "Predicted as a tail class (1)"
    assert [s.key for s in selections(Source(("ash", "birch")))] == ["all", "class-0", "class-1"]
