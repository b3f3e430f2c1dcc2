"""Which cluster work is handed to, by a stand-in for ray; the real one runs in tests of what uses it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.errors import DataError, MissingExtra
from calibrant.remote.ray_session import said, session


class _Ray(SimpleNamespace):
    joined = False

    def __init__(self) -> None:
        super().__init__(started=[], stopped=0)

    def is_initialized(self) -> bool:
        return self.joined

    def init(self, **options: Any) -> None:
        self.started.append(options)

    def shutdown(self) -> None:
        self.stopped += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> _Ray:
    stand_in = _Ray()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return stand_in


def test_a_cluster_of_its_own_has_the_cores_and_ends_with_the_work(ray: _Ray) -> None:
    with pytest.raises(KeyError), session("x", 3):
        raise KeyError
    assert ray.started[0]["num_cpus"] == 3
    assert ray.stopped == 1
    with session("x"):
        assert "num_cpus" not in ray.started[1]


def test_one_that_is_named_or_joined_is_taken_as_it_is(ray: _Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with session("x", 3):
        assert "num_cpus" not in ray.started[0]
    ray.joined = True
    with session("x", 3) as found:
        assert found is ray
    assert len(ray.started) == ray.stopped == 1


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtra, match=r"predict --engine ray needs ray.*calibrant\[ray\]"),
        session("predict --engine ray"),
    ):
        pass


def test_an_error_is_one_line() -> None:
    error = RuntimeError("a trace\n  of many lines\n\nValueError: the end\n")
    assert said(error) == "ValueError: the end"
    error.cause = DataError("is damaged", where="a.png")  # type: ignore[attr-defined]
    assert said(error) == "a.png: is damaged"
    assert said(RuntimeError()) == "RuntimeError"
