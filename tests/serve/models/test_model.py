"""What a model answers beyond its graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.serve.models.model import Model
from calibrant.serve.protocol.errors import NotFound


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (None, "no calibrant block"),
        (SimpleNamespace(independent=False), "with --monitor"),
        (SimpleNamespace(independent=True), "its labels are independent"),
    ],
)
def test_a_model_without_a_monitor_says_why(card: Any, why: str) -> None:
    model: Any = SimpleNamespace(name="birds", monitor=None, session=SimpleNamespace(card=card))
    with pytest.raises(NotFound, match=f"birds is not monitored.*{why}"):
        Model.require_monitor(model)
