from __future__ import annotations

import pytest

from calibrant.errors import ConfigError
from calibrant.serve.monitor.config import MonitorConfig


@pytest.mark.parametrize(
    ("name", "value"), [("window", 0), ("window", -3), ("horizon", 0), ("alpha", 0.0), ("alpha", 1.0)]
)
def test_what_nothing_could_be_watched_by_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} = {value:g}: it "):
        MonitorConfig(**{name: value})  # type: ignore[arg-type]
