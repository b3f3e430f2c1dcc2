from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from calibrant.errors import ConfigError
from calibrant.serve.config_file import read_config_file
from calibrant.serve.limits import MAY_BE_0, Limits


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Limits)])
def test_a_limit_of_nothing_is_none_but_where_it_asks_for_nothing(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} = -1: it has to be "):
        Limits(**{field: -1})
    if field in MAY_BE_0:
        Limits(**{field: 0})
    else:
        with pytest.raises(ConfigError, match=f"{field} = 0: it has to be above 0"):
            Limits(**{field: 0})


def test_a_share_is_one_and_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text("[limits]\npeer_share = 1.5\n")
    with pytest.raises(ConfigError, match=r"peer_share = 1.5: it has to be above 0 and at most 1"):
        read_config_file(file, [])
