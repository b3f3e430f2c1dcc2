"""The settings of a token reduction: read without torch, and what older runs wrote down means what it meant."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from calibrant.config import build, to_table
from calibrant.errors import ConfigError
from calibrant.train.vit.config import TokenReduction, stored


def test_settings_are_read_without_torch() -> None:
    code = "import sys, calibrant.train.config, calibrant.train.vit; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("settings", "cache", "pool"),
    [({}, False, True), ({"cache_tokens": 1}, True, True), ({"cache_pool": True}, True, True),
     ({"cache_pool": False}, False, False), ({"cache_tokens": 2, "cache_pool": False}, True, False)],
)  # fmt: skip
def test_a_cache_is_there_where_something_is_put_into_it(settings: dict[str, Any], cache: bool, pool: bool) -> None:
    chosen = TokenReduction("evit", 0.5, **settings)
    assert (chosen.cache, chosen.cache_pool) == (cache, pool)
    assert build(TokenReduction, stored(to_table(chosen)), where="run") == chosen


def test_runs_of_before_the_pooled_cache_have_none() -> None:
    old = {"method": "evit", "keep_rate": 0.5, "cache_tokens": 0, "cache_pool": True}
    assert build(TokenReduction, stored(old), where="run").cache is False
    assert build(TokenReduction, stored({**old, "cache_tokens": 1}), where="run").cache is True


def test_a_cache_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds nothing"):
        TokenReduction("evit", 0.5, cache=True, cache_pool=False)
