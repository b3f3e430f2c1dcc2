"""Which values of a group column are judged."""

from __future__ import annotations

from calibrant.calibration.statistics.row_groups import worth_judging


def test_values_with_few_rows_and_those_beyond_twenty_are_counted_not_judged() -> None:
    values = ["a"] * 10 + ["b"] * 9 + [None] * 12
    assert worth_judging({"site": values})[0] == {"site": ("", "a")}
    assert "2 of its 3 values" in worth_judging({"site": values})[1][0]
    assert worth_judging({"site": ["a"] * 10}) == ({"site": ("a",)}, ())
    many = [f"p{i:02d}" for i in range(25) for _ in range(10 + i)]
    (found,) = worth_judging({"patient": many})[0].values()
    assert found == tuple(f"p{i:02d}" for i in range(5, 25))
    assert "20 of its 25 values" in worth_judging({"patient": many})[1][0]
