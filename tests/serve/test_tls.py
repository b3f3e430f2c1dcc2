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

from calibrant.serve.processes.background import running


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


def _signed(folder: Path, name: str, by: str) -> tuple[str, str]:
    cert, key, asked = (folder / f"{name}{end}" for end in (".pem", ".key", ".csr"))
    _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", asked)
    _openssl("x509", "-req", "-in", asked, "-CA", folder / f"{by}.pem", "-CAkey", folder / f"{by}.key", "-days", "1",
             "-CAcreateserial", "-out", cert)  # fmt: skip
    return str(cert), str(key)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


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
        context = ssl.create_default_context(cafile=str(cert))
        if caller is not None:
            context.load_cert_chain(*callers[caller])
        if grpc:
            context.set_alpn_protocols(["h2"])
        try:
            with (
                socket.create_connection((server.host, server.grpc_port if grpc else server.port), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as s,
            ):
                if grpc:
                    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                else:
                    s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
                return bool(s.recv(1000))  # in TLS 1.3 a caller is told after its own handshake
        except (ssl.SSLError, ConnectionError):
            return False

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
