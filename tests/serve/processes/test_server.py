from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest

from calibrant.artifacts import feedback, golden_rows
from calibrant.artifacts.feedback import read_feedback, segments
from calibrant.artifacts.model_card import Prior
from calibrant.serve.config import ModelSpec, ServeConfig
from calibrant.serve.control import Control
from calibrant.serve.http.app import Application
from calibrant.serve.http.message import Request
from calibrant.serve.inference import Inference
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.processes.background import running
from calibrant.serve.processes.server import Server

INFER = "/v2/models/birds/infer"


def _body(pixels: Any, **extra: Any) -> dict[str, Any]:
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    return {"inputs": [entry], **extra}


def _probabilities(reply: httpx.Response) -> Any:
    output = next(o for o in reply.json()["outputs"] if o["name"] == "probabilities")
    return np.array(output["data"]).reshape(output["shape"])


class Hammer:
    """Callers that send one request after the other and keep what went wrong."""

    def __init__(self, url: str, pixels: Any, wanted: list[Any], callers: int = 4) -> None:
        self.url, self.body, self.wanted = url, json.dumps(_body(pixels)), wanted
        self.failures: list[str] = []
        self.answers = 0
        self.versions: set[int] = set()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(callers)]

    def __enter__(self) -> Hammer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _work(self) -> None:
        with httpx.Client(base_url=self.url, timeout=120) as client:
            while not self._stop.is_set():
                try:
                    reply = client.post(INFER, content=self.body)
                except httpx.ConnectError:
                    return  # the server is gone, after its last answer
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    return
                self._check(reply)

    def _check(self, reply: httpx.Response) -> None:
        if reply.status_code != 200:
            self.failures.append(f"{reply.status_code} {reply.text}")
            return
        got = _probabilities(reply)
        near = [n for n, wanted in enumerate(self.wanted) if np.allclose(got, wanted, atol=1e-6)]
        if not near:
            self.failures.append(f"a wrong answer: {got}")
        self.versions.update(near)
        self.answers += 1


def _until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


def test_a_changed_file_takes_over_without_a_failed_request(tmp_path: Path, tiny: ModuleType) -> None:
    path = tiny.write(tmp_path / "birds.onnx")
    pixels = tiny.pictures(2)
    wanted = [tiny.expected(pixels), tiny.expected(pixels, strength=0.0)]
    other = tiny.write(tmp_path / "new.onnx", tiny.card(prior=Prior(train=tiny.TRAIN)))
    with (
        running(path, arguments=["--threads", "1", "--reload", "0.1"]) as server,
        Hammer(server.url, pixels, wanted) as hammer,
    ):
        _until(lambda: hammer.answers > 20)
        os.replace(other, path)
        _until(lambda: 1 in hammer.versions)
        at = hammer.answers
        _until(lambda: hammer.answers > at + 20)
        path.write_bytes(b"not a model")  # refused, and the one before goes on
        _until(lambda: "cannot be served" in server.log.read_text())
        at = hammer.answers
        _until(lambda: hammer.answers > at + 20)
    assert hammer.failures == []
    assert hammer.versions == {0, 1}


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM")
@pytest.mark.parametrize("cores", ["all", "one"])
def test_sigterm_under_load_answers_everything_that_was_sent(
    cores: str,
    model_file: Path,
    tiny: ModuleType,
    one_core: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    pixels = tiny.pictures(2)
    with contextlib.ExitStack() as stack:
        with one_core() if cores == "one" else contextlib.nullcontext():
            server = stack.enter_context(running(model_file, arguments=["--threads", "1"]))
        hammer = stack.enter_context(Hammer(server.url, pixels, [tiny.expected(pixels)], callers=6))
        _until(lambda: hammer.answers > 50)
        os.kill(server.pid, signal.SIGTERM)
        _until(lambda: not any(thread.is_alive() for thread in hammer._threads))
    assert hammer.failures == []


def test_labels_by_request_id_and_what_the_monitor_says(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    log = tmp_path / "log"
    arguments = ["--threads", "1", "--feedback-log", str(log)]
    pixels = tiny.pictures(40)
    p = tiny.expected(pixels)
    with running(model_file, arguments=arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for n in range(20):
            reply = client.post(INFER, json=_body(pixels[n : n + 1], id=f"r{n}"))
            np.testing.assert_allclose(_probabilities(reply), p[n : n + 1], atol=1e-6)
        given = client.post(INFER, json=_body(pixels[20:40])).json()["id"]  # an id of the server's own, 20 rows
        feedback = "/v2/models/birds/feedback"
        right = [{"id": f"r{n}", "label": int(p[n].argmax())} for n in range(20)]
        assert client.post(feedback, json={"labels": right}).json() == {
            "accepted": 20, "repeated": 0, "changed": 0, "unknown": []}  # fmt: skip
        assert client.post(feedback, json={"labels": right[:5]}).json()["repeated"] == 5
        packed = gzip.compress(json.dumps({"labels": right[:5]}).encode())
        assert client.post(feedback, content=packed, headers={"Content-Encoding": "gzip"}).json()["repeated"] == 5
        row = client.post(feedback, json={"id": given, "row": 3, "label": "auk"}).json()
        assert row["accepted"] == 1
        strange = client.post(feedback, json={"id": "never", "label": "auk"})
        assert strange.status_code == 404
        assert strange.json()["error"] == 'no prediction of birds has the id "never"'
        wrong = client.post(feedback, json={"id": "r1", "label": "ostrich"})
        assert wrong.status_code == 400
        assert "ostrich" in wrong.json()["error"]
        report = client.get("/v2/models/birds/monitor").json()
        assert (report["rows"], report["labels"]) == (40, 21)
        assert report["expected_accuracy"]["value"] == pytest.approx(p.max(axis=1).mean(), abs=1e-5)
        correct = 20 + (p[23].argmax() == 0)
        assert report["labelled"]["accuracy"]["value"] == pytest.approx(correct / 21)
        metrics = client.get("/metrics").text
        assert 'calibrant_monitor_labels_total{model="birds",version="1"} 21' in metrics
        assert 'calibrant_model_rows_total{model="birds",version="1"} 40' in metrics
        ece = report["labelled"]["ece"]
        assert 0 <= ece["low"] <= ece["high"] <= 1
        assert 0 < ece["null"] < ece["null_high"] < 1  # what a perfectly calibrated model shows of 21 rows
        for bound in ("value", "low", "high", "null", "null_high"):
            (line,) = [m for m in metrics.splitlines() if "calibrant_monitor_ece{" in m and f'bound="{bound}"' in m]
            assert float(line.split()[-1]) == pytest.approx(ece[bound])
        assert 'bound="null_high",' not in metrics.split("calibrant_monitor_nll", 1)[1]  # it has none
    # A day later, after a restart: the prediction is in the log and still takes its label.
    with running(model_file, arguments=arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        late = {"labels": [{"id": f"{given}/5", "label": 2}, {"id": "r3", "label": right[3]["label"]}]}
        reply = client.post(feedback, json=late).json()
        assert (reply["accepted"], reply["repeated"]) == (1, 1)
    (served,) = read_feedback(log).served
    assert len(served.ids) == 40
    assert (served.labels >= 0).sum() == 22
    assert (served.latency_ms > 0).all()
    assert len(set(served.latency_ms[20:].tolist())) == 1  # one request of 20 rows
    np.testing.assert_allclose(np.exp(served.logits) / np.exp(served.logits).sum(axis=1, keepdims=True), p, atol=1e-6)


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_monitor_that_waits_for_its_disk_holds_up_metrics_but_no_answer(model_file: Path, tiny: ModuleType) -> None:
    """What /metrics tells of a monitor is worked out in a thread."""
    model = Model.load(model_file, threads=1)
    identity = feedback.Model(model.name, model.version, model.sha256, tiny.CLASSES)
    model.monitor = Monitor(identity, tiny.card(), MonitorConfig(), None)
    repository, replies = Repository(), []
    repository.add(model)
    inference = Inference(repository, Limits())
    app = Application(inference, Control(repository))

    held, go_on, lock = threading.Event(), threading.Event(), model.monitor._lock

    def write() -> None:
        with lock:  # as the monitor's thread does while it writes
            held.set()
            go_on.wait(10)

    async def main() -> None:
        inference.loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as other:
            other.submit(write)
            assert held.wait(30)
            app(Request(b"GET", b"/metrics", {}), replies.append)
            app(Request(b"GET", b"/v2/health/live", {}), replies.append)
            assert [b"live" in bytes(r.parts[0]) for r in replies] == [True]
            go_on.set()
            while len(replies) < 2:
                await asyncio.sleep(0.01)

    try:
        asyncio.run(asyncio.wait_for(main(), 60))
    finally:
        inference.close()
        model.batcher.close()
    assert b"calibrant_monitor_rows_total" in bytes(replies[1].parts[0])


def test_an_absurd_input_breaks_neither_metrics_nor_monitor(tmp_path: Path, tiny: ModuleType) -> None:
    path = tiny.write(tmp_path / "birds.onnx", float_input=True)
    x = np.full((1, 3, 16, 16), 3e38, "<f4")  # finite, and infinite once it is summed up
    head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
        {"name": "images", "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    ]}).encode()  # fmt: skip
    headers = {"Inference-Header-Content-Length": str(len(head))}
    with running(path, arguments=["--threads", "1", "--monitor"]) as server:
        infer = f"{server.url}/v2/models/birds/infer"
        assert httpx.post(infer, content=head + x.tobytes(), headers=headers, timeout=60).status_code == 200
        assert httpx.post(infer, content=head + bytes(x.nbytes), headers=headers, timeout=60).status_code == 200
        metrics = httpx.get(server.url + "/metrics", timeout=60)
        assert metrics.status_code == 200
        assert "calibrant_monitor_not_finite_total" in metrics.text
        report = httpx.get(f"{server.url}/v2/models/birds/monitor", timeout=60).json()
        assert (report["rows"], report["not_finite"]) == (1, 1)
        assert 0 < report["expected_accuracy"]["value"] < 1
        long = json.dumps({**json.loads(head), "id": "x" * 5000}).encode()
        headers = {"Inference-Header-Content-Length": str(len(long))}
        reply = httpx.post(infer, content=long + bytes(x.nbytes), headers=headers, timeout=60)
        assert "`id`" in reply.json()["error"]  # every row of the request would carry it into the log


def test_kill_9_under_load_leaves_a_log_without_duplicates(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    log, pixels = tmp_path / "log", tiny.pictures(1)
    arguments = ["--threads", "1", "--feedback-log", str(log)]
    with running(model_file, arguments=arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for n in range(50):
            client.post(INFER, json=_body(pixels, id=f"a{n}"))
        _until(lambda: any('"a49"' in path.read_text() for path in segments(log)))  # flushed twice a second
        for n in range(50):
            client.post(INFER, json=_body(pixels, id=f"b{n}"))
        os.kill(server.pid, signal.SIGKILL)
    found = read_feedback(log)
    ids = found.served[0].ids
    assert {f"a{n}" for n in range(50)} <= set(ids)
    assert found.repeated_ids == 0
    assert (found.served[0].labels == -1).all()


def test_canary_and_shadow_and_versions(tmp_path: Path, tiny: ModuleType) -> None:
    old = tiny.write(tmp_path / "old.onnx")
    new = tiny.write(tmp_path / "new.onnx", tiny.card(prior=Prior(train=tiny.TRAIN)))
    pixels = tiny.pictures(1)
    arguments = ["--threads", "1", "--canary", "birds@2=0.5", "--shadow", "birds@3=1", "--monitor"]
    models = [f"birds@1={old}", f"birds@2={new}", f"birds@3={new}"]
    with running(*models, arguments=arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get("/v2/models/birds").json()["versions"] == ["1", "2", "3"]
        pinned = client.post("/v2/models/birds/versions/3/infer", json=_body(pixels)).json()
        assert pinned["model_version"] == "3"
        versions = [client.post(INFER, json=_body(pixels)).json()["model_version"] for _ in range(60)]
        assert set(versions) == {"1", "2"}
        assert 10 < versions.count("2") < 50
        _until(lambda: _shadowed(client) == 60)
        before = client.get("/v2/models/birds/versions/3/monitor").json()["rows"]
        replies = [client.post(INFER, json=_body(pixels)).json() for _ in range(20)]
        _until(lambda: _shadowed(client) == 80)
        copied = client.get("/v2/models/birds/versions/3/monitor").json()["rows"] - before
        assert copied > 0
        labels = [{"id": reply["id"], "label": 0} for reply in replies]
        taken = client.post("/v2/models/birds/feedback", json={"labels": labels}).json()
        assert (taken["accepted"], taken["unknown"]) == (20, [])
        versions = client.get("/v2/models/birds/monitor").json()["versions"]
        assert versions["1"]["labels"] + versions["2"]["labels"] == 20
        assert versions["3"]["labels"] == copied  # all that the shadow has seen


def _shadowed(client: httpx.Client) -> int:
    """Copies that the shadow has answered or, on a busy machine, turned away."""
    names = ('calibrant_model_shadowed_total{model="birds",version="3"}',
             'calibrant_model_requests_total{model="birds",version="3",outcome="turned_away"}')  # fmt: skip
    lines = client.get("/metrics").text.splitlines()
    return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(names))


def test_admin_is_off_unless_asked_for_and_never_writes_files(tmp_path: Path, tiny: ModuleType) -> None:
    path = tiny.write(tmp_path / "birds.onnx")
    load, unload = "/v2/repository/models/birds/load", "/v2/repository/models/birds/unload"
    with running(path, arguments=["--threads", "1"]) as server:
        assert httpx.post(server.url + unload, json={}, timeout=60).status_code == 403
    with (
        running(path, arguments=["--threads", "1", "--admin"]) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        for parameters in ({"config": "{}"}, {"file:1/model.onnx": "AAAA"}):
            assert client.post(load, json={"parameters": parameters}).status_code == 403
        assert client.post(unload, json={"parameters": {"unload_dependents": False}}).status_code == 200
        assert client.post("/v2/repository/index").json()[0]["state"] == "UNAVAILABLE"
        assert client.get("/v2/health/ready").status_code == 503
        assert client.post(INFER, json=_body(tiny.pictures(1))).status_code == 503
        assert client.post(load, json={}).status_code == 200
        assert client.post(INFER, json=_body(tiny.pictures(1))).status_code == 200
        assert "not started with" in client.post("/v2/repository/models/eggs/load", json={}).json()["error"]


def test_loading_brings_back_what_unloading_took_and_ready_means_all(tmp_path: Path, tiny: ModuleType) -> None:
    """All versions, or a canary that is the newest would get everything; not ready while one cannot be loaded."""
    paths = {version: tiny.write(tmp_path / f"{version}.onnx") for version in ("2", "9", "10")}
    other = tiny.write(tmp_path / "other.onnx")
    specs = [f"birds@{version}={path}" for version, path in paths.items()]
    arguments = ["--threads", "1", "--admin", "--reload", "0", "--canary", "birds@10=0.1"]
    with (
        running(*specs, f"other={other}", arguments=arguments) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.post("/v2/repository/models/birds/unload").status_code == 200
        assert client.get("/v2/health/ready").status_code == 200  # what was taken away is not missed
        assert client.post("/v2/repository/models/birds/load").status_code == 200
        assert client.get("/v2/models/birds").json()["versions"] == ["2", "9", "10"]
        assert client.post("/v2/repository/models/birds/unload").status_code == 200
        content = paths["9"].read_bytes()
        paths["9"].write_bytes(b"junk")
        reply = client.post("/v2/repository/models/birds/load")
        assert reply.status_code == 400
        assert "9.onnx" in reply.json()["error"]
        assert client.get("/v2/models/birds").json()["versions"] == ["2", "10"]
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/v2/models/other/ready").status_code == 200
        paths["9"].write_bytes(content)
        assert client.post("/v2/repository/models/birds/load").status_code == 200
        assert client.get("/v2/health/ready").status_code == 200


def test_a_token_guards_everything_but_health(model_file: Path) -> None:
    with running(model_file, arguments=["--threads", "1", "--token", "s3cret"]) as server:
        assert httpx.get(server.url + "/v2/health/live", timeout=60).status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            reply = httpx.get(server.url + "/v2", headers=headers, timeout=60)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"].startswith("Bearer")
        for scheme in ("Bearer", "bearer", "BEARER "):  # names of schemes have no case (RFC 9110, 11.1)
            headers = {"Authorization": f"{scheme} s3cret"}
            assert httpx.get(server.url + "/v2", headers=headers, timeout=60).status_code == 200
        odd = {"Authorization": "Bearer s3cr\u00e9t".encode("latin-1")}
        assert httpx.get(server.url + "/v2", headers=odd, timeout=60).status_code == 401


def test_pages_for_people_and_tools(url: str) -> None:
    page = httpx.get(url + "/", timeout=60)
    assert page.headers["content-type"].startswith("text/html")
    assert "<option>birds</option>" in page.text
    document = httpx.get(url + "/openapi.json", timeout=60).json()
    assert "/v2/models/{name}/versions/{version}/infer" in document["paths"]
    docs = httpx.get(url + "/docs", timeout=60)
    assert docs.headers["content-type"].startswith("text/html")
    for path, verbs in document["paths"].items():
        assert f"<code>{path}</code>" in docs.text
        reply = httpx.request(list(verbs)[0].upper(), url + path.format(name="birds", version="1"), timeout=60)
        assert reply.status_code in (200, 400)  # each is there, and takes that verb; bodies are missing
    assert "calibrant_http_requests_total" in httpx.get(url + "/metrics", timeout=60).text


def test_the_access_log_is_one_json_object_a_request(model_file: Path) -> None:
    with running(model_file, arguments=["--threads", "1", "--quiet", "--access-log"]) as server:
        httpx.get(server.url + "/v2/nothing", timeout=60)
        _until(lambda: "nothing" in server.log.read_text())
        line = next(x for x in server.log.read_text().splitlines() if "nothing" in x)
    assert json.loads(line)["status"] == 404


def _serve(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "calibrant", "serve", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return run.returncode, run.stderr.strip()


def test_what_cannot_be_served_is_one_line_and_exit_code_2(tmp_path: Path, model_file: Path) -> None:
    foreign = tmp_path / "foreign.onnx"
    foreign.write_bytes(b"GIF89a")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        cases = [
            (["--port", "0", str(tmp_path / "none.onnx")], "no such file"),
            (["--port", "0", str(foreign)], "onnxruntime cannot load it"),
            (["--port", port, str(model_file)], f"127.0.0.1:{port}: cannot listen (Address already in use)"),
            (["--port", "0", str(model_file), "--provider", "gpu"], 'no execution provider "gpu"'),
            (["--port", "0", str(model_file), str(model_file)], 'two models "birds" of version 1'),
            (["--port", "0", str(model_file), "--canary", "birds@7=0.1"], 'no model "birds@7"'),
            (["--port", "0", str(model_file), "--shadow", "birds=x"], "NAME@VERSION=SHARE"),
            (["--port", "0", str(model_file), "--grpc-port", port], "cannot listen for gRPC (Address already in use)"),
        ]
        for arguments, says in cases:
            code, error = _serve("--quiet", *arguments)
            assert code == 2, arguments
            assert says in error
            assert len(error.splitlines()) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_ready_file_of_one_that_was_killed_says_nothing_of_the_next(
    workers: str, tmp_path: Path, model_file: Path
) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text("{}")
    arguments = ["--port", "0", "--workers", workers, "--ready-file", str(ready), "--canary", "birds@7=0.1"]
    assert _serve("--quiet", str(model_file), *arguments)[0] == 2
    assert not ready.exists()


def test_a_folder_of_models_lives_at_once_grows_and_refuses_what_callers_could_not_use(
    tmp_path: Path, tiny: ModuleType
) -> None:
    """Over HTTP, with a budget for two of three models."""
    folder = tmp_path / "models"
    (folder / "birds" / "1").mkdir(parents=True)
    path = tiny.write(folder / "birds" / "1" / "model.onnx")
    tiny.write(folder / "crows@1.onnx")
    pixels = tiny.pictures(2)
    golden = golden_rows.record(tiny.expected, tiny.card())

    def replace_by(*arguments: Any, at: str) -> None:
        os.replace(tiny.write(tmp_path / "new.onnx", *arguments), folder / at)

    def asked(name: str) -> httpx.Response:
        return httpx.post(f"{server.url}/v2/models/{name}/infer", json=_body(pixels), timeout=60)

    def metrics() -> str:
        return httpx.get(f"{server.url}/metrics").text

    padded = tiny.card(description="x" * 600_000, golden=golden)  # 1 MiB holds one of these
    with running(folder, arguments=["--threads", "1", "--reload", "0.1", "--model-memory", "1", "--admin"]) as server:
        assert np.allclose(_probabilities(asked("birds")), tiny.expected(pixels), atol=1e-6)
        replace_by(padded, at="crows@2.onnx")
        _until(lambda: "crows version 2 is now" in server.log.read_text())
        replace_by(padded, at="doves.onnx")
        _until(lambda: "doves version 1 is now" in server.log.read_text())
        assert 'calibrant_model_ready{model="crows",version="2"} 0' in metrics()
        assert httpx.get(f"{server.url}/v2/health/ready").status_code == 200
        assert np.allclose(_probabilities(asked("crows")), tiny.expected(pixels), atol=1e-6)  # comes back for it
        assert "doves version 1 is put away" in server.log.read_text()
        assert httpx.get(f"{server.url}/v2/models/doves/ready").status_code == 200

        assert asked("birds").status_code == 200
        replace_by(tiny.card(classes=("a", "b", "c", "d")), at="birds/1/model.onnx")
        _until(lambda: 'class 0 was "auk" and is "a"' in server.log.read_text())
        replace_by(replace(padded, prior=Prior(train=tiny.TRAIN)), at="birds/1/model.onnx")
        _until(lambda: "does not answer its own golden rows" in server.log.read_text())
        path.unlink()
        _until(lambda: "is gone; birds version 1 goes on" in server.log.read_text())
        assert np.allclose(_probabilities(asked("birds")), tiny.expected(pixels), atol=1e-6)
        text = metrics()
    assert "calibrant_model_refusals_total 2" in text
    assert 'calibrant_model_file_missing{model="birds",version="1"} 1' in text


def test_a_port_answers_while_models_load(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: ModuleType
) -> None:
    go_on = threading.Event()
    load = Model.load.__func__  # type: ignore[attr-defined]

    def slow(cls: Any, *arguments: Any, **options: Any) -> Any:
        go_on.wait(60)
        return load(cls, *arguments, **options)

    monkeypatch.setattr(Model, "load", classmethod(slow))
    server = Server(ServeConfig([ModelSpec(model_file)], port=0, huge_pages=False))
    listener = server.listen()
    address: list[str] = []

    async def talk() -> None:
        serving = asyncio.ensure_future(server._serve(listener, address.append))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            assert (await client.get("/v2/health/live")).status_code == 200
            assert (await client.get("/v2/health/ready")).status_code == 503
            refused = await client.post(INFER, json=_body(tiny.pictures(1)))
            assert (refused.status_code, "still being loaded" in refused.text) == (503, True)
            early = await client.post("/predict", content=b"a picture, for which no model is named")
            assert (early.status_code, "still being loaded" in early.text) == (503, True)
            assert not address
            go_on.set()
            while not address:
                await asyncio.sleep(0.01)
            assert (await client.get("/v2/health/ready")).status_code == 200
            assert (await client.post(INFER, json=_body(tiny.pictures(1)))).status_code == 200
        assert server._stop is not None
        server._stop.set()
        await serving

    with contextlib.closing(listener):
        asyncio.run(talk())
