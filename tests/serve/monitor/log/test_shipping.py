"""Closed segments go to object storage: on fsspec's storage in memory, and from a server to an S3 server here."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_records import segments
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.remote.storage import local_copy
from calibrant.serve.monitor.log import shipping as log_shipping
from calibrant.serve.monitor.log.shipping import LogShipping
from calibrant.serve.processes.background import running

MODEL = Model("birds", "1", "abc", ("auk", "crane"))


def _write(folder: Path, name: str) -> FeedbackWriter:
    writer = FeedbackWriter(folder)
    writer.predictions(MODEL, [f"{name}-{k}" for k in range(20)], [1.0] * 20, np.zeros((20, 2), np.float32))
    writer.labels("birds", [f"{name}-3"], [1])
    return writer


def _recalled(folder: Path) -> LogShipping:
    shipping = LogShipping(folder, "memory://logs")
    shipping._recall()
    return shipping


def test_what_is_closed_goes_once_and_logs_of_many_servers_are_one(tmp_path: Path, storage: Any) -> None:
    for server in "ab":
        folder = tmp_path / server
        _write(folder, f"{server}1").close()
        still = _write(folder, f"{server}2")
        shipping = _recalled(folder)
        assert shipping.round()
        assert shipping.round()
        assert shipping.sent == 1
        still.close()
        assert shipping.round()
        again = _recalled(folder)  # a new start
        assert again.round()
        assert (shipping.sent, again.sent) == (2, 0)
    late = FeedbackWriter(tmp_path / "b")  # a label for an answer of the other server
    late.labels("birds", ["a1-5"], [1])
    late.close()
    assert again.round()
    (served,) = read_feedback(local_copy("memory://logs")).served
    assert sorted({i[:2] for i in served.ids}) == ["a1", "a2", "b1", "b2"]
    assert len(served.ids) == 80
    assert (served.labels >= 0).sum() == 5


def test_a_kill_before_it_was_noted_sends_the_same_object_again(tmp_path: Path, storage: Any) -> None:
    _write(tmp_path, "x").close()
    shipping = _recalled(tmp_path)
    noted = (tmp_path / "sent.json").read_bytes()
    shipping.round()
    (tmp_path / "sent.json").write_bytes(noted)
    assert _recalled(tmp_path).round()
    assert len(storage.ls("/logs")) == 1


def test_a_compacted_segment_goes_as_it_is_and_a_sent_one_is_not_sent_again(tmp_path: Path, storage: Any) -> None:
    _write(tmp_path, "x").close()
    shipping = _recalled(tmp_path)
    shipping.round()
    _write(tmp_path, "y").close()
    compact(tmp_path)
    assert shipping.round()
    assert sorted(Path(n).suffix for n in storage.ls("/logs", detail=False)) == [".jsonl", ".parquet"]
    assert len(read_feedback(local_copy("memory://logs")).served[0].ids) == 40


def test_a_storage_that_is_gone_is_tried_again_and_what_was_dropped_meanwhile_is_counted(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    for name in "xy":
        _write(tmp_path, name).close()
    shipping = _recalled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "put_file", gone)
        assert not shipping.round()
        assert not shipping.round()
    segments(tmp_path)[0].unlink()
    assert shipping.round()
    assert (shipping.sent, shipping.failures, shipping.lost) == (1, 2, 1)
    said = [record.getMessage() for record in caplog.records]
    assert [any(word in line for line in said) for word in ("no route", "1 part(s)", "is sent to")] == [True] * 3
    assert len(said) == 3  # a failure is said once


def test_the_wait_grows_while_it_fails_and_the_end_does_not_hang(
    tmp_path: Path, storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()
    shipping = LogShipping(tmp_path, "memory://logs")
    real = shipping._stop.wait

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return real(0.001) if len(waits) < 9 else shipping._stop.set() is None

    monkeypatch.setattr(shipping._stop, "wait", wait)
    monkeypatch.setattr(shipping, "round", lambda: False)
    shipping._work()
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert log_shipping.LOOK_SECONDS == 5


def _png(tiny: ModuleType) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(tiny.pictures(1)[0]).save(buffer, "png")
    return buffer.getvalue()


_SENT_ONE = 'calibrant_log_parts_sent_total{address="s3://models/log"} 1'


def _says(client: httpx.Client, url: str, text: str) -> bool:
    return text in client.get(url).text


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.2)


@pytest.mark.slow  # 30 s
def test_a_server_sends_its_log_to_a_bucket_through_a_kill(tmp_path: Path, tiny: ModuleType, bucket: Any) -> None:
    file = tiny.write(tmp_path / "birds.onnx")
    log = tmp_path / "log"
    arguments = ["--threads", "1", "--feedback-log", str(log), "--segment-hours", "0.001"]
    arguments += ["--log-to", "s3://models/log"]
    ids = []
    for start in range(2):
        with running(f"birds={file}", arguments=arguments) as server, httpx.Client(timeout=60) as client:
            for _ in range(5):
                answer = client.post(f"{server.url}/predict", content=_png(tiny))
                ids.append(answer.json()["id"])
            client.get(f"{server.url}/v2/models/birds/monitor")
            if start == 0:  # rotated by its age, sent by the thread
                _until(partial(_says, client, f"{server.url}/metrics", _SENT_ONE))
                client.post(f"{server.url}/v2/models/birds/feedback", json={"labels": [{"id": ids[1], "label": 1}]})
                os.kill(server.pid, signal.SIGKILL)
    (served,) = read_feedback(local_copy("s3://models/log")).served
    assert served.ids == tuple(ids)
    assert served.labels.tolist() == [-1, 1, *[-1] * 8]
    assert json.loads((log / "sent.json").read_text())["sent"]
