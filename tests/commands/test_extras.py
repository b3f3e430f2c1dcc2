"""The table of optional modules names extras that pyproject.toml has."""

from __future__ import annotations

import tomllib
from pathlib import Path

from calibrant.commands.extras import MODULES, extra_of

EXTRAS = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def test_every_extra_exists_and_every_one_for_users_is_in_the_table() -> None:
    assert set(MODULES.values()) == set(EXTRAS) - {"gpu", "docs", "dev", "all"}


def test_a_part_of_a_module_belongs_to_its_extra() -> None:
    assert extra_of("pyarrow.parquet") == "evaluate"
    assert extra_of("numpy") is None
