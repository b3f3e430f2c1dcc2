"""For all tests: no model hub is asked for anything, in this process and in those that it starts, and commands that are
called again and again with one --out replace what is there (tests/test_overwrite.py takes that back)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CALIBRANT_OVERWRITE"] = "1"
os.environ["CALIBRANT_PROGRESS"] = "off"  # what is said must not hang on how busy the machine is
if "PYTEST_XDIST_WORKER" in os.environ:  # a worker for each core: more threads would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def example_plugin() -> Iterator[Path]:
    """tests/plugin_example.py, loaded for one test."""
    from calibrant import plugins

    source = Path(__file__).parent / "plugin_example.py"
    plugins.load(source)
    yield source
    plugins.forget(source)
