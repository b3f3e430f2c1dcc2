"""For all tests: no model hub is asked for anything, in this process and in those that it starts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def example_plugin() -> Iterator[Path]:
    """tests/plugin_example.py, loaded for one test."""
    from calibrant import plugins

    source = Path(__file__).parent / "plugin_example.py"
    plugins.load(source)
    yield source
    plugins.forget(source)
