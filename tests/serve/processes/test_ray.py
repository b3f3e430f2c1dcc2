"""Ray Serve as the engine. The end-to-end test runs where ray is installed, or where CALIBRANT_RAY_PYTHON names an
interpreter that has it and this package."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest

from calibrant.errors import ConfigError
from calibrant.serve.config import ModelSpec, ServeConfig, Share
from calibrant.serve.processes import ray as ray_
from tests.two_nodes import two_nodes

PYTHON = os.environ.get("CALIBRANT_RAY_PYTHON") or (sys.executable if importlib.util.find_spec("ray") else None)


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"grpc_port": 0}, "--grpc-port"), ({"admin": True}, "--admin"), ({"monitor": True}, "--monitor"),
        ({"feedback_log": Path("log")}, "--feedback-log"), ({"tls_cert": Path("c.pem")}, "--tls-cert"),
        ({"canaries": (Share("a", "2", 0.1),)}, "--canary"), ({"reload_seconds": 0.0}, "--reload"),
        ({"grace_seconds": 1.0}, "--grace"), ({"access_log": True}, "--access-log"),
    ],
)  # fmt: skip
def test_options_that_ray_has_no_place_for_are_refused_not_ignored(change: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option}.* is not there with --engine ray"):
        ray_.run(ServeConfig([ModelSpec(Path("m.onnx"))], **change), 1, announce=lambda url, names: None)


@pytest.mark.parametrize(
    ("application", "asked", "said"),
    [
        ({"calibrant": {"route_prefix": "/"}}, 8306, '"calibrant" already, at port 8000; .*delete'),
        ({"theirs": {"route_prefix": "/"}}, 8000, 'serves the application "theirs" already'),
        ({"theirs": {"route_prefix": "/x"}}, 8306, "listens at 127.0.0.1:8000 .*pass --host 127.0.0.1 --port 8000"),
    ],
)  # fmt: skip
def test_what_runs_on_the_cluster_already_is_not_replaced(application: dict[str, Any], asked: int, said: str) -> None:
    running = {"http_options": {"host": "127.0.0.1", "port": 8000}, "applications": application}
    with pytest.raises(ConfigError, match=said):
        ray_._refuse_another(running, ServeConfig([ModelSpec(Path("m.onnx"))], port=asked))


def test_beside_applications_elsewhere_it_starts_at_their_port() -> None:
    running = {"http_options": {"host": "127.0.0.1", "port": 8000}, "applications": {"a": {"route_prefix": "/a"}}}
    ray_._refuse_another(running, ServeConfig([ModelSpec(Path("m.onnx"))], port=8000))


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="ray is not installed (pip install 'calibrant[ray]')")
def test_replicas_of_ray_give_the_answers_of_our_own_server(model_file: Path, tiny: ModuleType, tmp_path: Path) -> None:
    port, log = _free_port(), tmp_path / "log.txt"
    arguments = [str(model_file), "--engine", "ray", "--workers", "2", "--threads", "1", "--port", str(port)]
    assert PYTHON is not None
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [PYTHON, "-m", "calibrant", "serve", *arguments, "--max-body", "1", "--ray-address", "local"],
            stdout=stream, stderr=stream, cwd=Path(__file__).resolve().parents[3],
        )  # fmt: skip
    try:
        end = time.monotonic() + 240
        while "Serving birds" not in log.read_text():
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < end, log.read_text()[-2000:]
            time.sleep(0.2)
        pixels = tiny.pictures(3)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            assert client.get("/v2/health/ready").json()["ready"] is True
            for extra, wanted in (
                ({}, tiny.expected(pixels)),
                ({"parameters": {"temperature": 0.7, "target_prior": "train"}},
                 tiny.expected(pixels, 0.7, 1.0, tiny.TRAIN)),
            ):  # fmt: skip
                entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8"}
                body = {"inputs": [{**entry, "data": pixels.ravel().tolist()}], **extra}
                reply = client.post("/v2/models/birds/infer", json=body)
                got = next(o for o in reply.json()["outputs"] if o["name"] == "probabilities")
                np.testing.assert_allclose(np.array(got["data"]).reshape(3, 4), wanted, atol=1e-6)
            head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": pixels.nbytes}}],
                               "parameters": {"binary_data_output": True}}).encode()  # fmt: skip
            headers = {"Inference-Header-Content-Length": str(len(head))}
            reply = client.post("/v2/models/birds/infer", content=head + pixels.tobytes(), headers=headers)
            size = int(reply.headers["inference-header-content-length"])
            p = np.frombuffer(reply.content[size : size + 48], "<f4").reshape(3, 4)
            np.testing.assert_allclose(p, tiny.expected(pixels), atol=1e-6)
            assert client.post("/v2/models/birdz/infer", json=body).status_code == 404
            assert "inputs" in client.post("/v2/models/birds/infer", json={}).json()["error"]
            assert client.post("/predict", content=bytes(2 << 20)).status_code == 413
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while "SIGHUP: with --engine ray nothing is read again" not in log.read_text():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_second_start_leaves_the_first_and_its_token_alone(model_file: Path, tmp_path: Path) -> None:
    port, log = _free_port(), tmp_path / "log.txt"
    with two_nodes() as nodes, open(log, "wb") as stream:
        command = [sys.executable, "-m", "calibrant", "serve", str(model_file), "--engine", "ray", "--threads", "1"]
        command += ["--ray-address", nodes.address, "--port"]
        root, named = Path(__file__).resolve().parents[3], {**os.environ, "CALIBRANT_TOKEN": "secret"}
        process = subprocess.Popen([*command, str(port)], stdout=stream, stderr=stream, cwd=root, env=named)
        try:
            end = time.monotonic() + 240
            while "Serving birds" not in log.read_text():
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < end, log.read_text()[-2000:]
                time.sleep(0.2)
            again = subprocess.run(
                [*command, str(_free_port())], cwd=root, capture_output=True, text=True, timeout=200, check=False
            )
            assert again.returncode == 2
            assert f'"calibrant" already, at port {port};' in again.stderr.splitlines()[-1]
            assert "Serving" not in again.stdout
            assert httpx.get(f"http://127.0.0.1:{port}/v2/models/birds", timeout=60).status_code == 401
        finally:
            process.terminate()
            assert process.wait(120) == 0
        with socket.socket() as gone:  # nobody else had an application
            assert gone.connect_ex(("127.0.0.1", port)) != 0
