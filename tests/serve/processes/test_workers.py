from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from calibrant.artifacts.feedback import read_feedback
from calibrant.serve.processes.background import Running, running
from calibrant.serve.processes.listener import bind
from calibrant.serve.processes.other_workers import merged_metrics, merged_statistics

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="needs SO_REUSEPORT")
INFER = "/v2/models/birds/infer"


def _until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


def _body(pixels: Any, **extra: Any) -> dict[str, Any]:
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    return {"inputs": [entry], **extra}


def _children(server: Running) -> dict[int, int]:
    """Process of each worker by its number."""
    found = {}
    for child in psutil.Process(server.pid).children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            text = child.environ().get("CALIBRANT_SERVE_WORKER")
            if text is not None:
                found[json.loads(text)["number"]] = child.pid
    return found


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _served(url: str) -> dict[int, int]:
    """Rows that each worker has run."""
    lines = httpx.get(url + "/metrics", timeout=60).text.splitlines()
    rows = [line for line in lines if line.startswith("calibrant_model_rows_total{")]
    return {int(line.split('worker="')[1].split('"')[0]): int(line.rpartition(" ")[2]) for line in rows}


def _ask_both(url: str, tiny: ModuleType, prefix: str) -> list[str]:
    """Requests on connections of their own until each of two workers has had some; their ids."""
    pixels, ids = tiny.pictures(1), []
    before = _served(url)
    while any(_served(url).get(n, 0) <= before.get(n, 0) for n in (0, 1)):
        for _ in range(4):
            ids.append(f"{prefix}{len(ids)}")
            reply = httpx.post(url + INFER, json=_body(pixels, id=ids[-1]), timeout=60)
            assert reply.status_code == 200
        assert len(ids) < 400
    return ids


@pytest.fixture(scope="module")
def server(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    log = tmp_path_factory.mktemp("workers") / "log"
    with running(model_file, arguments=["--workers", "2", "--admin", "--feedback-log", str(log)]) as started:
        yield started, log


def test_samples_get_the_label_worker_and_families_stay_together() -> None:
    one = '# HELP a_total Text.\n# TYPE a_total counter\na_total{x="1"} 3\n# HELP b B.\n# TYPE b gauge\nb 2\n'
    two = '# HELP a_total Text.\n# TYPE a_total counter\na_total{x="1"} 4\n'
    assert merged_metrics({1: two, 0: one}).splitlines() == [
        "# HELP a_total Text.", "# TYPE a_total counter", 'a_total{worker="0",x="1"} 3', 'a_total{worker="1",x="1"} 4',
        "# HELP b B.", "# TYPE b gauge", 'b{worker="0"} 2',
    ]  # fmt: skip


def test_statistics_add_up() -> None:
    def entry(n: int, sizes: dict[int, int]) -> dict[str, Any]:
        return {
            "name": "m", "version": "1", "last_inference": n, "inference_count": n,
            "inference_stats": {"success": {"count": n, "ns": 10 * n}},
            "batch_stats": [{"batch_size": size, "compute_infer": {"count": c, "ns": c}} for size, c in sizes.items()],
        }  # fmt: skip

    (merged,) = merged_statistics([[entry(3, {1: 3})], [entry(5, {1: 1, 4: 1})]])
    assert (merged["last_inference"], merged["inference_count"]) == (5, 8)
    assert merged["inference_stats"]["success"] == {"count": 8, "ns": 80}
    assert merged["batch_stats"] == [
        {"batch_size": 1, "compute_infer": {"count": 4, "ns": 4}},
        {"batch_size": 4, "compute_infer": {"count": 1, "ns": 1}},
    ]


def test_workers_answer_as_one_server(server: tuple[Running, Path], tiny: ModuleType) -> None:
    """Whichever worker a connection reaches: counts are of all, labels find their rows, the report is one."""
    url, log = server[0].url, server[1]
    before = sum(_served(url).values())
    ids = _ask_both(url, tiny, "a")
    assert sum(_served(url).values()) - before == len(ids)
    for _ in range(6):  # on connections of their own, so of both workers
        stats = httpx.get(url + "/v2/models/birds/stats", timeout=60).json()["model_stats"][0]
        assert stats["inference_count"] == before + len(ids)
        assert httpx.get(url + "/v2/models/birds/monitor", timeout=60).json()["rows"] == before + len(ids)
    for id_ in ids:  # each on a connection of its own
        body = {"id": id_, "label": "crane"}
        taken = httpx.post(url + "/v2/models/birds/feedback", json=body, timeout=60).json()
        assert taken == {"accepted": 1, "repeated": 0, "changed": 0, "unknown": []}
    again = {"labels": [{"id": id_, "label": "crane"} for id_ in ids]}
    assert httpx.post(url + "/v2/models/birds/feedback", json=again, timeout=60).json()["repeated"] == len(ids)
    assert httpx.get(url + "/v2/models/birds/monitor", timeout=60).json()["labels"] == len(ids)
    assert httpx.post(url + "/internal/flush", timeout=60).status_code == 404
    (served,) = read_feedback(log).served
    assert set(ids) <= set(served.ids)
    assert (served.labels >= 0).sum() == len(ids)


def test_unloading_happens_everywhere(server: tuple[Running, Path], tiny: ModuleType) -> None:
    url = server[0].url
    assert httpx.post(url + "/v2/repository/models/birds/unload", json={}, timeout=60).status_code == 200
    assert {httpx.get(url + "/v2/health/ready", timeout=60).status_code for _ in range(12)} == {503}
    assert httpx.post(url + "/v2/repository/models/birds/load", json={}, timeout=60).status_code == 200
    assert {httpx.get(url + "/v2/health/ready", timeout=60).status_code for _ in range(12)} == {200}
    pixels = tiny.pictures(2)
    reply = httpx.post(url + INFER, json=_body(pixels), timeout=60).json()
    np.testing.assert_allclose(np.array(reply["outputs"][0]["data"]).reshape(2, 4), tiny.expected(pixels), atol=1e-6)


def test_grpc_shares_its_port_too(model_file: Path, tiny: ModuleType) -> None:
    triton = pytest.importorskip("tritonclient.grpc")
    pixels = tiny.pictures(2)
    with running(model_file, arguments=["--workers", "2", "--grpc-port", "0"]) as server:
        for n in range(1, 5):
            with triton.InferenceServerClient(f"{server.host}:{server.grpc_port}") as client:
                tensor = triton.InferInput("images", list(pixels.shape), "UINT8")
                tensor.set_data_from_numpy(pixels)
                reply = client.infer("birds", [tensor])
                np.testing.assert_allclose(reply.as_numpy("probabilities"), tiny.expected(pixels), atol=1e-6)
                stats = client.get_inference_statistics("birds").model_stats
                assert [entry.inference_count for entry in stats] == [2 * n]


@pytest.mark.parametrize(("number", "end"), [(1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGTERM)])
def test_a_worker_that_dies_is_replaced_and_its_rows_still_take_labels(
    server: tuple[Running, Path], tiny: ModuleType, number: int, end: signal.Signals
) -> None:
    url = server[0].url
    ids = _ask_both(url, tiny, f"{end.name}{number}-")
    assert httpx.get(url + "/v2/models/birds/monitor", timeout=60).json()["rows"]  # all of them are in the log
    old = _children(server[0])[number]
    os.kill(old, end)
    _until(lambda: _children(server[0]).get(number, old) != old)
    _until(lambda: set(_served(url)) == {0, 1})
    labels = {"labels": [{"id": id_, "label": 0} for id_ in ids]}
    taken = httpx.post(url + "/v2/models/birds/feedback", json=labels, timeout=120).json()
    assert (taken["accepted"], taken["unknown"]) == (len(ids), [])
    assert "another takes its place" in server[0].log.read_text()
    _ask_both(url, tiny, f"after-{end.name}{number}-")  # new connections reach the successor


def test_who_would_wait_for_a_worker_that_cannot_start_is_served_by_the_others(
    model_file: Path, tmp_path: Path, tiny: ModuleType
) -> None:
    """Half of all connections hung while the server said that it was ready."""
    config = tmp_path / "serve.toml"
    config.write_text("threads = 1\n")
    with running(model_file, arguments=["--workers", "2", "--config", str(config)]) as server:
        config.write_text("thraeds = 1\n")
        old = _children(server)[1]
        os.kill(old, signal.SIGKILL)
        _until(lambda: "worker 1 cannot start" in server.log.read_text())
        body = _body(tiny.pictures(1))
        for _ in range(30):
            assert httpx.post(server.url + INFER, json=body, timeout=20).status_code == 200
        config.write_text("threads = 1\n")
        _until(lambda: set(_served(server.url)) == {0, 1})
        assert server.log.read_text().count("worker 1 cannot start") >= 1


def test_sigterm_under_load_fails_no_request(model_file: Path, tiny: ModuleType) -> None:
    pixels = tiny.pictures(1)
    wanted, body = tiny.expected(pixels)[0], json.dumps(_body(pixels))
    problems: list[str] = []
    answers: list[int] = []

    def call(url: str) -> None:
        with httpx.Client(base_url=url, timeout=120) as client:
            while True:
                try:
                    reply = client.post(INFER, content=body)
                except httpx.ConnectError:
                    return  # after its last answer
                except httpx.HTTPError as error:
                    problems.append(repr(error))
                    return
                if reply.status_code != 200 or not np.allclose(reply.json()["outputs"][0]["data"], wanted, atol=1e-6):
                    problems.append(reply.text[:200])
                answers.append(1)

    with running(model_file, arguments=["--workers", "2", "--monitor"]) as server:
        threads = [threading.Thread(target=call, args=(server.url,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        _until(lambda: len(answers) > 100)
        workers = _children(server)
        os.kill(server.pid, signal.SIGTERM)
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
    assert problems == []
    assert not any(_lives(pid) for pid in workers.values())


def test_workers_end_when_their_parent_is_killed(model_file: Path) -> None:
    with running(model_file, arguments=["--workers", "2"]) as server:
        workers = _children(server)
        assert len(workers) == 2
        os.kill(server.pid, signal.SIGKILL)
        _until(lambda: not any(_lives(pid) for pid in workers.values()))


def test_what_cannot_be_served_is_said_once(tmp_path: Path, model_file: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        cases = [
            (["--port", "0", str(tmp_path / "none.onnx")], "no such file"),
            (["--port", port, str(model_file)], f"127.0.0.1:{port}: cannot listen (Address already in use)"),
            (["--port", "0", "--grpc-port", port, str(model_file)], "cannot listen for gRPC"),
        ]
        for arguments, says in cases:
            command = [sys.executable, "-m", "calibrant", "serve", "--workers", "3", "--quiet", *arguments]
            run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert run.returncode == 2, arguments
            assert says in run.stderr
            assert len(run.stderr.strip().splitlines()) == 1


def test_who_is_told_ready_is_answered_by_every_worker(model_file: Path, tmp_path: Path, tiny: ModuleType) -> None:
    """The second worker takes connections once its models are loaded, while the first one answers alone."""
    with bind("127.0.0.1", 0) as probe:
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    whole, body = tmp_path / "ready.json", _body(tiny.pictures(1))
    models = [f"m{n}={model_file}" for n in range(4)] + [str(model_file)]  # which take their time to load
    arguments = [*models, "--port", url.rpartition(":")[2], "--ready-file", str(whole), "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "serve", "--quiet", *arguments], stdout=subprocess.DEVNULL
    )
    try:
        _until(lambda: _status(f"{url}/v2/health/ready") == 200)
        asked = []
        while not whole.exists() or len(asked) < 20:
            asked.append(httpx.post(url + INFER, json=body, timeout=60).status_code)  # on a connection of its own
            assert process.poll() is None
        assert set(asked) == {200}
    finally:
        process.terminate()
        assert process.wait(60) == 0


def _status(address: str) -> int:
    try:
        return httpx.get(address, timeout=60).status_code
    except httpx.TransportError:
        return 0
