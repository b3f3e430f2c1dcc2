"""Tokens by name and right, from a file that is read again at SIGHUP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from calibrant.errors import ConfigError
from calibrant.serve.access import Access, read_tokens
from calibrant.serve.config import ServeConfig
from calibrant.serve.processes.background import running
from calibrant.serve.protocol.errors import Forbidden, Misdirected, Unauthorized

FILE = "# who may what\nshop infer aaa\n\nlabels feedback,infer bbb\nops admin ccc\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    return path


def _may(access: Access, token: str, right: str) -> None:
    access.authorise(f"Bearer {token}".encode(), send="header", right=right)


def test_a_token_may_what_its_line_says(tmp_path: Path) -> None:
    access = Access(read_tokens(_file(tmp_path, FILE)))
    _may(access, "aaa", "infer")
    _may(access, "bbb", "feedback")
    _may(access, "ccc", "admin")
    for token, right in (("aaa", "feedback"), ("bbb", "admin"), ("ccc", "infer")):
        with pytest.raises(Forbidden, match=right):
            _may(access, token, right)
    with pytest.raises(Unauthorized):
        _may(access, "shop", "infer")
    with pytest.raises(Unauthorized):
        access.authorise(b"Basic aaa", send="header")


def test_a_token_alone_on_its_line_may_everything(tmp_path: Path) -> None:
    access = Access(read_tokens(_file(tmp_path, "zzz\n")))
    for right in ("infer", "feedback", "admin"):
        _may(access, "zzz", right)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no token"), ("# nothing\n", "no token"), ("a b\n", "tokens:1: is neither"),
        ("x infer aaa\ny infr bbb\n", 'tokens:2: no right "infr"; did you mean "infer"'), ("s3cr\u00e9t\n", "ASCII"),
        ("x infer aaa\ny admin aaa\n", "tokens:2: holds the token of a line before again"),
    ],
)  # fmt: skip
def test_a_file_of_tokens_that_is_wrong_says_where(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        read_tokens(_file(tmp_path, text))


def test_two_ways_to_give_tokens_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one"):
        ServeConfig((), token="a", token_file=tmp_path / "tokens")
    with pytest.raises(ConfigError, match="cannot be read"):
        ServeConfig((), token_file=tmp_path / "none").tokens()


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("birds.example.org", True), ("Birds.Example.org:8000", True), ("a.b.test", True), ("[::1]:8000", True),
        ("127.0.0.1:80", True), ("example.org", False), ("test", False), ("birds.example.org.evil", False),
        ("eviltest", False), ("", False), ("127.0.0.1.evil", False), ("[::2]", False),
    ],
)  # fmt: skip
def test_a_server_is_called_by_its_names_only(host: str, good: bool) -> None:
    access = Access(hosts=("birds.example.org", "*.test", "127.0.0.1", "[::1]"))
    if good:
        access.check_host(host.encode())
        return
    with pytest.raises(Misdirected):
        access.check_host(host.encode())


def test_both_fronts_look_at_the_name(model_file: Path) -> None:
    grpc = pytest.importorskip("grpc")
    arguments = ["--threads", "1", "--allowed-host", "birds.test", "--grpc-port", "0"]
    with running(model_file, arguments=arguments) as server, httpx.Client(timeout=60) as client:
        for host, status in (("birds.test:8000", 200), ("evil.test", 421)):
            got = client.get(server.url + "/v2", headers={"Host": host})
            assert (got.status_code, "not called" in got.text) == (status, status == 421)
            assert client.get(server.url + "/v2/health/live", headers={"Host": host}).status_code == 200
            options = [("grpc.default_authority", host)]
            with grpc.insecure_channel(f"{server.host}:{server.grpc_port}", options=options) as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
                if status == 200:
                    assert b"calibrant" in call(b"", timeout=60)
                    continue
                with pytest.raises(grpc.RpcError) as refused:
                    call(b"", timeout=60)
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("name", ["::1", "birds.test:80", "http://birds", "*", "a b", ""])
def test_a_name_that_no_caller_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name"):
        ServeConfig((), allowed_hosts=(name,))


def test_names_are_the_same_in_capitals_and_with_the_dot_of_the_root() -> None:
    hosts = ServeConfig((), allowed_hosts=("Birds.Example.org.",)).allowed_hosts
    assert hosts == ("birds.example.org",)
    for given in (b"BIRDS.example.org", b"birds.example.org.:8000"):
        Access(hosts=hosts).check_host(given)


def test_metrics_are_there_by_address_too_and_other_pages_are_not(model_file: Path) -> None:
    """Prometheus calls each of several servers by its own."""
    with running(model_file, arguments=["--threads", "1", "--allowed-host", "birds.test"]) as server:
        for host, statuses in (("10.0.0.7:8000", [200, 421]), ("[::1]:8000", [200, 421]), ("evil.test", [421, 421])):
            found = [httpx.get(server.url + path, headers={"Host": host}, timeout=60) for path in ("/metrics", "/v2")]
            assert [each.status_code for each in found] == statuses, host


def test_the_log_names_the_token_and_not_its_secret(model_file: Path, tmp_path: Path) -> None:
    grpc = pytest.importorskip("grpc")
    arguments = ["--threads", "1", "--token-file", str(_file(tmp_path, FILE)), "--access-log", "--grpc-port", "0"]
    with running(model_file, arguments=arguments) as server:
        assert httpx.get(server.url + "/v2", headers={"Authorization": "Bearer aaa"}, timeout=60).status_code == 200
        with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
            call(b"", timeout=60, metadata=[("authorization", "Bearer bbb")])
        httpx.get(server.url + "/v2/health/live", timeout=60)
        lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
        named = {line["path"]: line.get("token") for line in lines}
        assert named["/v2"] == "shop"
        assert named["/inference.GRPCInferenceService/ServerMetadata"] == "labels"
        assert named["/v2/health/live"] is None
        assert "aaa" not in server.log.read_text()


def test_an_empty_variable_does_not_open_the_server(model_file: Path) -> None:
    command = [sys.executable, "-m", "calibrant", "serve", str(model_file), "--check"]
    for text, code in (("", 2), ("s3cret", 0)):
        environment = {**os.environ, "CALIBRANT_TOKEN": text}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, "guard nothing" in done.stderr) == (code, code == 2)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP")
@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_reads_tokens_again_and_never_ends_the_server(workers: int, tmp_path: Path, model_file: Path) -> None:
    path = _file(tmp_path, FILE)
    arguments = ["--threads", "1", "--token-file", str(path), "--workers", str(workers), "--admin"]

    def status(token: str, address: str = "/v2", verb: str = "GET") -> int:
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        return httpx.request(verb, server.url + address, headers=headers, timeout=60).status_code

    def until(token: str, want: int) -> None:
        end = time.monotonic() + 60
        while {status(token) for _ in range(6)} != {want}:
            assert time.monotonic() < end
            time.sleep(0.05)

    with running(model_file, arguments=arguments) as server:
        assert (status("aaa"), status("new")) == (200, 401)
        load = "/v2/repository/models/birds/load"
        assert [status(token, load, "POST") for token in ("aaa", "none", "ccc")] == [403, 401, 200]
        path.write_text("shop infer new\n")
        os.kill(server.pid, signal.SIGHUP)
        until("new", 200)
        until("aaa", 401)
        path.write_text("shop\tinfer\n")  # broken: the old ones stay
        os.kill(server.pid, signal.SIGHUP)
        end = time.monotonic() + 60
        while "nothing was changed" not in server.log.read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        assert status("new") == 200
