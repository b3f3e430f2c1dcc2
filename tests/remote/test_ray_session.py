"""Which cluster work is handed to, by a stand-in for ray; the real one runs in tests of what uses it."""

from __future__ import annotations

import importlib.util
import socket
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.errors import ConfigError, DataError, MissingExtra, ModelError
from calibrant.remote import ray_session
from calibrant.remote.ray_session import failed, joined, said, session


class _Ray(SimpleNamespace):
    joined = False

    def __init__(self) -> None:
        super().__init__(started=[], stopped=0, says=None)

    def is_initialized(self) -> bool:
        return self.joined

    def init(self, **options: Any) -> None:
        if self.says is not None:
            raise self.says
        self.started.append(options)

    def shutdown(self) -> None:
        self.stopped += 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> _Ray:
    stand_in = _Ray()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_session, "_running_here", lambda: None)
    monkeypatch.setattr(ray_session, "_reach", lambda address: None)
    monkeypatch.setattr(ray_session, "_refused", lambda address: False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return stand_in


def test_a_cluster_of_its_own_has_the_cores_and_ends_with_the_work(ray: _Ray) -> None:
    with pytest.raises(KeyError), session("x", 3):
        raise KeyError
    assert (ray.started[0]["address"], ray.started[0]["num_cpus"]) == ("local", 3)
    assert ray.stopped == 1
    with session("x") as cluster:
        assert cluster.own
        assert "num_cpus" not in ray.started[1]


def test_one_that_is_named_or_joined_is_taken_as_it_is(ray: _Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with session("x", 3) as cluster:
        assert not cluster.own
    with session("x", 3, "10.0.0.2:6379"):
        pass
    assert [options["address"] for options in ray.started] == ["10.0.0.1:6379", "10.0.0.2:6379"]
    assert not any("num_cpus" in options for options in ray.started)
    ray.joined = True
    with session("x", 3) as cluster:
        assert cluster.ray is ray
        assert not cluster.own
    assert len(ray.started) == ray.stopped == 2
    with pytest.raises(ConfigError, match="--ray-address: this program has joined a cluster"), session("x", 3, "a:1"):
        pass


def test_one_that_runs_here_is_joined_and_said_unless_local_is_asked_for(
    ray: _Ray, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_session, "_running_here", lambda: "10.0.0.3:6379")
    with session("x", 3) as cluster:
        assert not cluster.own
    assert ray.started[0]["address"] == "10.0.0.3:6379"
    assert "num_cpus" not in ray.started[0]
    assert "joined the cluster of Ray that runs here (10.0.0.3:6379)" in caplog.text
    with session("x", 3, "local") as cluster:
        assert cluster.own
    assert (ray.started[1]["address"], ray.started[1]["num_cpus"]) == ("local", 3)


def test_what_does_not_answer_is_said_at_once(monkeypatch: pytest.MonkeyPatch, ray: _Ray) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ModelError, match=rf"{address}: no cluster of Ray could be joined"),
            session("x", 3, address),
        ):
            pass
    assert not ray.started
    ray.says = Exception("The current node timed out during startup.")
    with pytest.raises(ModelError, match="Ray did not start on this machine .*timed out"), session("x", 3, "local"):
        pass
    ray.says = RuntimeError("Version mismatch: 2.40")
    with pytest.raises(ModelError, match="Version mismatch"), session("x", 3, "ray://there:10001"):
        pass


def test_a_token_that_is_asked_for_is_said(ray: _Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "_refused", lambda address: True)
    with (
        pytest.raises(ModelError, match="there:1: the cluster .* token, and none was sent; set RAY_AUTH_MODE=token"),
        session("x", 3, "there:1"),
    ):
        pass
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(ModelError, match="takes another than ours; put what"), session("x", 3, "a:1"):
        pass
    assert not ray.started


def test_a_refusal_is_known_from_other_answers_and_from_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    class AuthenticationError(Exception):
        pass

    def asked(address: str) -> None:
        if address == "refuses:1":
            raise AuthenticationError
        if address == "silent:1":
            time.sleep(1)
        if address == "fails:1":
            raise RuntimeError

    monkeypatch.setattr(ray_session, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setitem(sys.modules, "ray._raylet", SimpleNamespace(GcsClient=asked))
    monkeypatch.setitem(sys.modules, "ray.exceptions", SimpleNamespace(AuthenticationError=AuthenticationError))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    start = time.monotonic()
    assert [ray_session._refused(at) for at in ("refuses:1", "silent:1", "fails:1", "fine:1")] == [True] + 3 * [False]
    assert time.monotonic() - start < 0.9
    assert not ray_session._refused("ray://refuses:1")


def test_the_cluster_that_runs_here_is_sent_this_user_s_token(ray: _Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bool] = []
    monkeypatch.setattr(ray_session, "_running_here", lambda: "10.0.0.3:6379")
    monkeypatch.setattr(ray_session, "_refused", lambda address: not sent)
    monkeypatch.setattr(ray_session, "_token_sent", lambda: False)
    with pytest.raises(ModelError, match="none was sent"), session("x"):
        pass
    monkeypatch.setattr(ray_session, "_token_sent", lambda: sent.append(True) or True)
    with session("x") as cluster:
        assert not cluster.own
    assert [options["address"] for options in ray.started] == ["10.0.0.3:6379"]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_what_a_killed_cluster_left_behind_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import services

    def left(*_: Any) -> str:
        return "127.0.0.1:1"

    monkeypatch.setattr(services, "get_ray_address_from_environment", left)
    assert ray_session._running_here() is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(services, "get_ray_address_from_environment", lambda *_: address)
        assert ray_session._running_here() == address


def test_the_option_is_for_ray_and_joins_before_the_work(ray: _Ray) -> None:
    with pytest.raises(ConfigError, match="--ray-address: is for --engine ray"), joined("a:1", engine="process"):
        pass
    with joined(None, engine="process"), joined(None, engine="ray"):
        assert not ray.started
    with joined("10.0.0.1:6379", engine="ray"):
        assert ray.started[0]["address"] == "10.0.0.1:6379"
    assert ray.stopped == 1


def test_an_error_of_ours_comes_back_as_it_was() -> None:
    error = RuntimeError("a trace")
    with pytest.raises(ModelError, match=r"here: what Ray was given failed \(a trace\); again"):
        failed(error, where="here", fix="again")
    error.cause = DataError("is damaged", where="a.png", fix="mend it")  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="^a.png: is damaged; mend it$"):
        failed(error, where="here")


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
