from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from calibrant.errors import ConfigError
from calibrant.serve.config import ServeConfig
from calibrant.serve.config_check import checked
from calibrant.serve.processes.background import Running, running
from calibrant.serve.tls import certificate, validity


def _certificate(cert: Path, key: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_https_with_a_certificate_of_ones_own(model_file: Path, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _certificate(cert, key)
    arguments = ["--threads", "1", "--tls-cert", str(cert), "--tls-key", str(key)]
    with running(model_file, arguments=arguments) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=context, timeout=60) as client:
            assert client.get(f"{server.url}/v2/health/ready").json()["ready"] is True
            big = client.post(f"{server.url}/v2/models/birds/infer", content=b"x" * 3_000_000)
            assert big.status_code == 400
    arguments = ["--port", "0", "--tls-cert", str(tmp_path / "none.pem"), "--quiet"]
    command = [sys.executable, "-m", "calibrant", "serve", str(model_file), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 2
    assert "the certificate cannot be used" in run.stderr


@pytest.mark.skipif(shutil.which("openssl") is None or os.name != "posix", reason="openssl, SIGHUP")
def test_a_renewed_certificate_is_served_after_sighup_and_a_broken_one_is_not(model_file: Path, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _certificate(cert, key)
    with running(model_file, arguments=["--threads", "1", "--tls-cert", str(cert), "--tls-key", str(key)]) as server:
        at = (server.host, server.port)
        first = ssl.get_server_certificate(at)
        _certificate(cert, key)
        assert ssl.get_server_certificate(at) == first
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: ssl.get_server_certificate(at) == cert.read_text())
        second = cert.read_text()
        assert second != first
        _certificate(cert, tmp_path / "other.pem")  # the key in place is another's
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: "nothing was changed" in server.log.read_text())
        assert ssl.get_server_certificate(at) == second


def _authority(folder: Path, name: str) -> Path:
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}", "-keyout", key,
             "-out", cert)  # fmt: skip
    return cert


def _signed(folder: Path, name: str, by: str, days: int = 1) -> tuple[str, str]:
    cert, key, asked = (folder / f"{name}{end}" for end in (".pem", ".key", ".csr"))
    _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", asked)
    _openssl("x509", "-req", "-in", asked, "-CA", folder / f"{by}.pem", "-CAkey", folder / f"{by}.key", "-days", days,
             "-CAcreateserial", "-out", cert)  # fmt: skip
    return str(cert), str(key)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def _answers(server: Running, cert: Path, shown: tuple[str, str] | None, *, grpc: bool) -> bool:
    """To a caller who shows that certificate, or none."""
    context = ssl.create_default_context(cafile=str(cert))
    if shown is not None:
        context.load_cert_chain(*shown)
    if grpc:
        context.set_alpn_protocols(["h2"])
    port = server.grpc_port if grpc else server.port
    try:
        with (
            socket.create_connection((server.host, port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as s,
        ):
            hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            s.sendall(hello if grpc else b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            return bool(s.recv(1000))  # in TLS 1.3 a caller is told after its own handshake
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.skipif(shutil.which("openssl") is None or os.name != "posix", reason="openssl, SIGHUP")
def test_callers_show_a_certificate_until_nobody_vouches_for_it(model_file: Path, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _certificate(cert, key)
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(_authority(tmp_path, "shop").read_text())
    _authority(tmp_path, "field")
    callers = {name: _signed(tmp_path, f"caller-{name}", name) for name in ("shop", "field")}
    arguments = ["--threads", "1", "--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(trusted),
                 "--grpc-port", "0"]  # fmt: skip

    def works(caller: str | None, grpc: bool = False) -> bool:
        return _answers(server, cert, None if caller is None else callers[caller], grpc=grpc)

    with running(model_file, arguments=arguments) as server:
        for grpc in (False, True):
            assert [works(caller, grpc) for caller in ("shop", "field", None)] == [True, False, False]
        trusted.write_text((tmp_path / "field.pem").read_text())
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: works("field"))
        for grpc in (False, True):
            assert [works(caller, grpc) for caller in ("shop", "field", None)] == [False, True, False]
    check = [sys.executable, "-m", "calibrant", "serve", str(model_file), "--check", *arguments[2:6]]
    run = subprocess.run(
        [*check, "--tls-client-ca", str(key)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, "judge callers by" in run.stderr) == (2, True)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


@pytest.mark.skipif(shutil.which("openssl") is None or os.name != "posix", reason="openssl, SIGHUP")
@pytest.mark.parametrize("workers", [1, 2])
def test_that_callers_show_a_certificate_can_begin_and_end_by_sighup(
    workers: int, model_file: Path, tmp_path: Path
) -> None:
    """It was said to have changed, and did not."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    _certificate(cert, key)
    _authority(tmp_path, "shop")
    _authority(tmp_path, "field")
    callers = {name: _signed(tmp_path, f"caller-{name}", name) for name in ("shop", "field")}
    config, plain = tmp_path / "serve.toml", "tls-cert = 'cert.pem'\ntls-key = 'key.pem'\n"
    config.write_text(plain)
    arguments = ["--threads", "1", "--workers", str(workers), "--config", str(config), "--grpc-port", "0"]

    def all_work(caller: str | None) -> set[bool]:
        shown = None if caller is None else callers[caller]
        return {_answers(server, cert, shown, grpc=grpc) for grpc in (False, True) for _ in range(6)}  # every worker

    with running(model_file, arguments=arguments) as server:
        assert all_work(None) == {True}
        config.write_text(plain + "tls-client-ca = 'shop.pem'\n")
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: server.log.read_text().count("changed: tls_client_ca") == workers)
        assert (all_work("shop"), all_work("field"), all_work(None)) == ({True}, {False}, {False})
        config.write_text(plain)
        os.kill(server.pid, signal.SIGHUP)
        _until(lambda: server.log.read_text().count("changed: tls_client_ca") == 2 * workers)
        assert all_work(None) == {True}
        with httpx.Client(verify=ssl.create_default_context(cafile=str(cert)), timeout=60) as client:
            text = client.get(f"{server.url}/metrics").text
        begun = sum(
            float(line.split()[-1]) for line in text.splitlines() if line.startswith("calibrant_tls_handshakes")
        )
        accepted = sum(
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith(("calibrant_http_connections_total", "calibrant_grpc_connections_total"))
        )
        assert begun > accepted > 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_key_that_is_missing_or_locked_is_said_so(tmp_path: Path) -> None:
    cert, key, locked = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "locked.pem"
    _certificate(cert, key)
    _openssl("rsa", "-aes256", "-passout", "pass:secret", "-in", key, "-out", locked)
    with pytest.raises(ConfigError, match="given as --tls-key"):
        certificate(cert, None)
    with pytest.raises(ConfigError, match="without a password"):
        certificate(cert, locked)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize(
    ("days", "said", "wrong"),
    [(-1, "has EXPIRED", True), (1, "ENDS in 1.0 days", True), (30, "holds for 30 days", False)],
)
def test_how_long_a_certificate_holds_is_said(
    days: int, said: str, wrong: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _authority(tmp_path, "authority")
    cert, key = (Path(p) for p in _signed(tmp_path, "server", by="authority", days=days))
    context = certificate(cert, key)
    assert (said in caplog.text) is wrong
    for served in (context, certificate(cert, key, tmp_path / "authority.pem")):  # the second asks callers for one
        assert validity(served, cert).said == said
    assert said in next(line for line in checked(ServeConfig(tls_cert=cert, tls_key=key)) if "certificate" in line)
