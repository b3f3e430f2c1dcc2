"""A wrong key or value in a config is an error that says where and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from calibrant.config import build, read_toml, to_table, with_overrides
from calibrant.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    learning_rate: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class Outer:
    data: Path
    epochs: int = 3
    mode: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    patience: int | None = None
    amp: bool = False
    inner: Inner = field(default_factory=Inner)


def test_a_table_becomes_the_dataclass() -> None:
    table = {"data": "x", "epochs": 7, "names": ["p", "q"], "inner": {"learning-rate": 1, "betas": [0.5, 0.6]}}
    got = build(Outer, table, where="run.toml")
    assert got == Outer(Path("x"), 7, names=("p", "q"), inner=Inner(1.0, (0.5, 0.6)))
    assert isinstance(got.inner.learning_rate, float)
    assert build(Outer, to_table(got), where="again") == got


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"data": "x", "inner": {"learing_rate": 1}}, 'learing_rate.*did you mean "learning_rate"'),
        ({"data": "x", "epochs": "many"}, "epochs: expected int, got 'many'"),
        ({"data": "x", "epochs": True}, "epochs: expected int"),
        ({"data": "x", "mode": "c"}, '"c" is not possible'),
        ({"data": "x", "inner": {"betas": [1]}}, "expected 2 values, got 1"),
        ({"data": "x", "amp": 1}, "amp: expected bool"),
        ({}, 'key "data" is missing'),
    ],
)
def test_what_does_not_fit_is_named(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Outer, table, where="run.toml")


def test_overrides_reach_into_tables_and_leave_the_original() -> None:
    table = {"inner": {"learning_rate": 0.5}}
    got = with_overrides(table, ["inner.learning_rate=0.25", "data=some/where", "names=['a']", "epochs=5"])
    assert got == {"inner": {"learning_rate": 0.25}, "data": "some/where", "names": ["a"], "epochs": 5}
    assert table == {"inner": {"learning_rate": 0.5}}
    with pytest.raises(ConfigError, match="is not key=value"):
        with_overrides({}, ["epochs"])
    with pytest.raises(ConfigError, match="is a value, not a table"):
        with_overrides({"epochs": 3}, ["epochs.x=1"])


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = = 3")
    with pytest.raises(ConfigError, match=r"bad\.toml: not a TOML file"):
        read_toml(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        read_toml(tmp_path / "none.toml")
