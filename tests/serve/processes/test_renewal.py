"""What SIGHUP changes while a server serves, by a real one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from calibrant.errors import ConfigError
from calibrant.serve.config import ModelSpec, ServeConfig, Share
from calibrant.serve.processes.background import running
from calibrant.serve.processes.renewal import renew
from calibrant.serve.processes.server import Server

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP")


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_configuration_is_read_again(workers: int, model_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("max_body = 1\nallowed_host = ['127.0.0.1']\n")
    arguments = ["--threads", "1", "--workers", str(workers), "--config", str(path)]

    def statuses(size: int) -> set[int]:
        headers = {"Host": "birds.test", "Connection": "close"}
        url = f"{server.url}/v2/models/birds/infer"
        return {httpx.post(url, content=bytes(size), headers=headers, timeout=60).status_code for _ in range(6)}

    with running(model_file, arguments=arguments) as server:
        assert (statuses(100), statuses(1_500_000)) == ({421}, {413})
        path.write_text("max_body = 2\nbatch_cap = 4\n[limits]\nmax_pixels = 5\n")
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: statuses(1_500_000) == {400})
        said = server.log.read_text()
        assert said.count("changed: allowed_hosts, limits") == workers
        assert said.count("next start only: batch_cap") == workers
        path.write_text("max_boddy = 2\n")
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: server.log.read_text().count("nothing was changed") == workers)
        assert 'no option "max_boddy"' in server.log.read_text()
        assert statuses(1_500_000) == {400}


def test_https_does_not_begin_while_it_serves(model_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("admin = false\n")
    with running(model_file, arguments=["--threads", "1", "--config", str(path)]) as server:
        load = f"{server.url}/v2/repository/models/birds/load"
        assert httpx.post(load, timeout=60).status_code == 403
        path.write_text("tls_cert = 'cert.pem'\nadmin = true\n")
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: "cannot begin or end" in server.log.read_text())
        assert httpx.post(load, timeout=60).status_code == 403
        path.write_text("admin = true\n")
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: httpx.post(load, timeout=60).status_code == 200)


def test_what_does_not_fit_the_rest_changes_nothing(model_file: Path) -> None:
    """Rules that go by labels, where nothing is monitored before the next start."""
    canary = (Share("birds", "2", 0.1),)
    old = ServeConfig([ModelSpec(model_file)], port=0, token="old", canaries=canary)
    new = ServeConfig([ModelSpec(model_file)], port=0, token="new", canaries=canary, canary_auto=True, monitor=True)
    server = Server(old, again=lambda: new)
    try:
        with pytest.raises(ConfigError, match="go.* by labels"):
            renew(server)
        assert [token.secret for token in server.access.tokens] == ["old"]
        assert server.config is old
    finally:
        server.inference.close()
