"""A server under load for half an hour, with all that happens to one: is any answer wrong, any label lost?

    python bench/serve_soak.py [--minutes 30] [--share 0.8] [--workers 2] [--callers 8] [--folder DIR] [--json PATH]

The model is a small network of ours whose answer can be computed here for any input: each answer is checked against
its own request (probabilities within 1e-4, and the request's id). The load is `--share` of what the server answers in
the first ten seconds. Meanwhile, in turns of ten seconds:

- a file is replaced by another one that answers the same (a reload), and in the first half a version comes as a canary
  (each one stays loaded beside those before it, which takes memory that is no leak),
- labels are sent for a part of the answers; those that were acknowledged are looked up in the log at the end,
- bad neighbours: junk, half bodies, absurd shapes, connections that close at once; their failures are not ours,
- in the first half a worker is killed (SIGKILL): requests that it was working on fail by a closed connection, and are
  counted apart; rows that it had not written take no label (404), and labels are told to wait for the successor of the
  one that keeps them (503).

The last lines say what must be 0 (wrong, lost labels, refused without reason), the rate that was asked for and had, in
all and in the slowest ten seconds, and the growth of the workers' memory: the median of the last tenth over that of
the seventh, of workers that lived as long.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback import read_feedback
from calibrant.artifacts.model_card import KEY, InputSpec, ModelCard
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.processes.background import running

CLASSES, SIZE = 5, 8
WEIGHTS = np.random.default_rng(3).normal(0, 0.5, (CLASSES, 3 * SIZE * SIZE)).astype(np.float32)


def write_model(path: Path, note: str) -> Path:
    """softmax(W x): small enough that the server, not the network, is what is tried."""
    from onnx import TensorProto, helper, numpy_helper

    image = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", CLASSES]) for name in ("probabilities", "logits")
    ]
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("Gemm", ["flat", "W"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    graph = helper.make_graph(nodes, "soak", [image], outputs, [numpy_helper.from_array(WEIGHTS, "W")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="calibrant")
    model.ir_version = 8
    classes, pixels = tuple(f"class-{k}" for k in range(CLASSES)), Preprocessing(size=(SIZE, SIZE), resize=SIZE)
    card = ModelCard(classes, pixels, name="soak",
                     input=InputSpec("images", "float32", "NCHW"), description=note)  # fmt: skip
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, card.to_json()
    beside = path.with_name(path.name + ".part")
    beside.write_bytes(model.SerializeToString())
    beside.replace(path)
    return path


def expected(x: NDArray[np.float32]) -> NDArray[np.float64]:
    z = x.reshape(len(x), -1).astype(np.float64) @ WEIGHTS.T
    e = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


@dataclass
class Tally:
    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    cut: int = 0  # connections that ended without an answer
    acknowledged: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    turns: list[float] = field(default_factory=list)  # requests a second, of ten seconds each
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, table: dict[str, int], what: str) -> None:
        with self.lock:
            table[what] = table.get(what, 0) + 1


class Soak:
    def __init__(self, url: str, tally: Tally, rate: float | None) -> None:
        self.host, self.port = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self.tally, self.rate, self.stop = tally, rate, threading.Event()

    def caller(self, number: int, callers: int) -> None:
        """One after the other, or where there is a rate at its share of it; now and then a few rows, or with labels."""
        dice, serial = np.random.default_rng([number, time.time_ns() % 2**32]), 0
        connection: http.client.HTTPConnection | None = None
        due = time.monotonic()
        while not self.stop.is_set():
            if self.rate is not None:
                due = max(due + dice.exponential(callers / self.rate), time.monotonic() - 1.0)
                self.stop.wait(max(0.0, due - time.monotonic()))
            connection = connection or http.client.HTTPConnection(self.host, self.port, timeout=60)
            serial += 1
            rows = 1 if dice.random() < 0.9 else int(dice.integers(2, 5))
            x = dice.normal(size=(rows, 3, SIZE, SIZE)).astype(np.float32)
            id_ = f"{number}-{time.time_ns()}-{serial}"
            try:
                self._ask(connection, id_, x, label=dice.random() < 0.1)
            except (OSError, http.client.HTTPException):
                self.tally.cut += 1
                connection.close()
                connection = None
                self.stop.wait(0.05)

    def _ask(self, connection: http.client.HTTPConnection, id_: str, x: NDArray[np.float32], *, label: bool) -> None:
        tensor = {
            "name": "images",
            "shape": list(x.shape),
            "datatype": "FP32",
            "parameters": {"binary_data_size": x.nbytes},
        }
        head = json.dumps({"id": id_, "inputs": [tensor], "outputs": [{"name": "probabilities"}]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        status, said = _send(connection, "/v2/models/soak/infer", head + x.tobytes(), headers)
        if status != 200:
            self.tally.count(self.tally.refused, f"{status} {said.get('error', '')[:80]}")
            return
        found = np.array(said["outputs"][0]["data"]).reshape(len(x), -1)
        self.tally.answered += 1
        if said["id"] != id_ or found.shape != (len(x), CLASSES) or np.abs(found - expected(x)).max() > 1e-4:
            self.tally.wrong.append(f"{id_}: {said['id']} {found.tolist()}")
        if label:
            names = [id_] if len(x) == 1 else [f"{id_}/{n}" for n in range(len(x))]
            labels = {name: int(k) for name, k in zip(names, expected(x).argmax(1), strict=True)}
            body = json.dumps({"labels": [{"id": n, "label": k} for n, k in labels.items()]}).encode()
            status, said = _send(connection, "/v2/models/soak/feedback", body, {})
            if status == 200 and not said["unknown"]:
                with self.tally.lock:
                    self.tally.acknowledged.update(labels)
            else:
                self.tally.count(self.tally.refused, f"label {status} {str(said)[:60]}")

    def neighbour(self) -> None:
        dice = random.Random(9)
        absurd = json.dumps({"inputs": [{"name": "images", "shape": [1, 9], "datatype": "FP32", "data": [1] * 9}]})
        infer = b"POST /v2/models/soak/infer HTTP/1.1\r\nHost: x\r\n"
        messages = (
            os.urandom(200), infer + b"Content-Length: 100000\r\n\r\nhalf", infer + b"Content-Length: 1\r\n\r\n{",
            infer + f"Content-Length: {len(absurd)}\r\n\r\n{absurd}".encode(), b"GET / HTTP/1.1\r\n", b"",
            infer + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        )  # fmt: skip
        while not self.stop.wait(0.1):
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=2) as s:
                s.sendall(dice.choice(messages))
                s.settimeout(0.2)
                s.recv(4096)


def _send(connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def workers_of(pid: int) -> list[int]:
    """Of a supervisor; the process itself where it has none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(p) for p in children] or [pid]


def resident(pid: int) -> float:
    """MiB that are this process's own."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private")) / 1024


def events(
    folder: Path, url: str, pid: int, soak: Soak, minutes: float, memory: list[tuple[float, int, float]]
) -> None:
    """What happens to the server, in turns, and its memory every second."""
    turn, version, start = 0, 2, time.monotonic()
    before, since = 0, start
    while time.monotonic() - start < 60 * minutes:
        for worker in workers_of(pid):
            with contextlib.suppress(OSError):
                memory.append((time.monotonic() - start, worker, resident(worker)))
        soak.stop.wait(1.0)
        if time.monotonic() - start < 10 * (turn + 1):
            continue
        turn += 1
        now, answered = time.monotonic(), soak.tally.answered
        soak.tally.turns.append((answered - before) / (now - since))
        before, since = answered, now
        kind = ("reload", "canary", "kill")[turn % 3]
        if kind == "reload":
            write_model(folder / "soak" / "1" / "model.onnx", f"reload {turn}")
        elif kind == "canary" and time.monotonic() - start < 30 * minutes:
            version += 1
            (folder / "soak" / str(version)).mkdir()
            write_model(folder / "soak" / str(version) / "model.onnx", f"version {version}")
        elif (
            kind == "kill" and len(workers_of(pid)) > 1 and turn % 9 == 2 and time.monotonic() - start < 30 * minutes
        ):  # each third time: a successor takes seconds to load
            os.kill(random.choice(workers_of(pid)), signal.SIGKILL)
            kind = "worker killed"
        else:
            continue
        soak.tally.count(soak.tally.done, kind)


def growth(memory: list[tuple[float, int, float]], seconds: float) -> dict[int, float]:
    """Of each worker that was there in both tenths, in per cent."""
    found = {}
    for worker in {pid for _, pid, _ in memory}:
        early = [m for at, pid, m in memory if pid == worker and 0.6 * seconds <= at < 0.7 * seconds]
        late = [m for at, pid, m in memory if pid == worker and at >= 0.9 * seconds]
        if early and late:
            found[worker] = round(100 * (statistics.median(late) / statistics.median(early) - 1), 2)
    return found


def run_callers(soak: Soak, callers: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=soak.caller, args=(n, callers)) for n in range(callers)]
    for thread in threads:
        thread.start()
    return threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="of model files and the log; a new one by default")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    models, log, settings = folder / "models", folder / "log", folder / "serve.toml"
    for version in ("1", "2"):
        (models / "soak" / version).mkdir(parents=True)
        write_model(models / "soak" / version / "model.onnx", f"version {version}")
    settings.write_text("[canary_rules]\nlabels = 40\nslow_gain = 0.9\n[limits]\npeer_connections = 4096\n")
    arguments = ["--workers", str(asked.workers), "--feedback-log", str(log), "--canary", "soak@newest=0.2",
                 "--canary-auto", "--config", str(settings), "--quiet"]  # fmt: skip
    with running(models, arguments=arguments, timeout=120) as server:
        first = Soak(server.url, Tally(), None)
        threads = run_callers(first, asked.callers)
        time.sleep(10)
        first.stop.set()
        for thread in threads:
            thread.join()
        full = first.tally.answered / 10
        print(f"{full:.0f} requests/s at full load; {asked.minutes:g} minutes at {100 * asked.share:.0f} %", flush=True)
        tally, memory = Tally(), list[tuple[float, int, float]]()
        soak = Soak(server.url, tally, asked.share * full)
        threads = [*run_callers(soak, asked.callers), threading.Thread(target=soak.neighbour)]
        threads[-1].start()
        events(models, server.url, server.pid, soak, asked.minutes, memory)
        soak.stop.set()
        for thread in threads:
            thread.join()
        said = server.log.read_text(errors="replace")
    known = {i: int(k) for s in read_feedback(log).served for i, k in zip(s.ids, s.labels, strict=True) if k >= 0}
    lost = [i for i, k in tally.acknowledged.items() if known.get(i) != k]
    worker_memory = {
        str(pid): [[round(at), round(mib, 1)] for at, p, mib in memory[::15] if p == pid]
        for pid in {pid for _, pid, _ in memory}
    }
    report = {
        "minutes": asked.minutes, "asked_per_second": round(asked.share * full),
        "had_per_second": round(tally.answered / (60 * asked.minutes)), "slowest_ten_seconds": round(min(tally.turns)),
        "answered": tally.answered, "wrong": len(tally.wrong), "refused": tally.refused,
        "cut": tally.cut, "labels_acknowledged": len(tally.acknowledged), "labels_lost": len(lost),
        "happened": tally.done, "growth_percent": growth(memory, 60 * asked.minutes),
        "tracebacks": said.count("Traceback"),
    }  # fmt: skip
    for line in [*tally.wrong[:5], *(f"lost: {i}" for i in lost[:5])]:
        print(line)
    print(json.dumps(report, indent=2))
    if asked.json:
        asked.json.write_text(
            json.dumps({**report, "per_second": [round(r) for r in tally.turns], "mebibytes": worker_memory})
        )


if __name__ == "__main__":
    main()
