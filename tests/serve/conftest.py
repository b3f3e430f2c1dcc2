"""Small deployed files, built with the onnx package; nothing here needs torch."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


def _load_tiny() -> ModuleType:
    """tests/serve/tiny.py under a name of its own: the tests are no package."""
    name = "serve_tiny"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("tiny.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Batch curves of tests stay out of the cache of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """The builder module: `tiny.write(path, ...)`."""
    return _load_tiny()


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory, tiny: ModuleType) -> Path:
    """Four classes, temperature 2, prior correction of strength 1 in the graph, conformal quantiles."""
    path: Path = tiny.write(tmp_path_factory.mktemp("model") / "birds.onnx")
    return path


@pytest.fixture(scope="session")
def url(model_file: Path) -> Iterator[str]:
    """A server on the model, shared by the tests that leave it as they found it."""
    from calibrant.serve.processes.background import running

    with running(model_file, arguments=["--threads", "1"]) as server:
        yield server.url


@pytest.fixture(scope="session")
def one_core() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What is started in this context may use one core only."""
    return _pinned


@contextlib.contextmanager
def _pinned() -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system cannot pin a process to a core")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
