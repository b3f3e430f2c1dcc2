"""What callers of the server get of onnxruntime's own speed: one core for the server, the other for the callers.

    python bench/serve_speed.py [--model small|lite0|PATH] [--parts share alone caps logging] [--json PATH]

share    64 clients, each sends its next request when it has its answer: rate / what onnxruntime alone does on that core
         at its best batch size, and the 99th percentile / the ideal median (64 requests at the raw rate). By wall time,
         and by CPU time, which a busy neighbour disturbs less.
alone    One client on a plain socket, in short turns with a bare run of one row: the median over the turns of the
         difference of their medians. The same for the least that a socket costs: a loop that receives as many bytes,
         runs, and sends the tensors, without any protocol or check.
caps     The same load with the batch cap fixed; the measured cap's rate / the best of them.
logging  The same load with --feedback-log and without, by turns: rate lost.

Every figure is the median over the repeats; raw and served runs take turns, since a machine's mood changes by the
minute. Callers run on the other core, so a machine that is not quiet takes from the share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from calibrant.artifacts.model_card import KEY, InputSpec, ModelCard
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.callers.generator import Load, request_bytes, run
from calibrant.serve.engine.session import Session
from calibrant.serve.processes.background import running

SERVER, CALLERS = 0, 1  # cores
PARTS = ("share", "alone", "caps", "logging")
ASKED = {  # what the project asks of these models
    "share": {"small": ">= 0.85", "lite0": ">= 0.90"}, "p99 / ideal p50": "<= 1.5", "added_ms": "<= 0.25",
    "measured / best": ">= 0.95", "lost": "<= 0.03",
}  # fmt: skip


def small_model(path: Path, size: int = 96) -> Path:
    """A CNN of about a third of a millisecond: 110 KB requests, float NCHW."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, weights, last, channels = [], [], "images", 3
    for n, (width, stride, kernel) in enumerate([(40, 2, 3), (88, 2, 3), (128, 2, 3), (160, 2, 3)]):
        w = rng.normal(0, 0.1, (width, channels, kernel, kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(w, f"w{n}"))
        nodes.append(helper.make_node("Conv", [last, f"w{n}"], [f"c{n}"], strides=[stride] * 2, pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{n}"], [f"r{n}"]))
        last, channels = f"r{n}", width
    weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (100, channels)).astype(np.float32), "W"))
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "W"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, size, size])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 100]) for n in ("probabilities", "logits")],
        weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return _with_card(model, path, size)


def lite0(path: Path, weights: Path | None = None) -> Path:
    """EfficientNet-Lite0, 1,000 classes; with random weights unless a safetensors file is given."""
    import onnx
    import timm
    import torch

    overlay = {} if weights is None else {"pretrained_cfg_overlay": {"file": str(weights)}}
    network = timm.create_model("tf_efficientnet_lite0", pretrained=weights is not None, **overlay).eval()

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = self.network(images)
            return logits.softmax(-1), logits

    batch = torch.export.Dim("N", min=1, max=4096)
    torch.onnx.export(
        Both(), (torch.zeros(2, 3, 224, 224),), path, dynamo=True, input_names=["images"],
        output_names=["probabilities", "logits"], dynamic_shapes=({0: batch},), external_data=False,
    )  # fmt: skip
    return _with_card(onnx.load(path), path, 224)


def _with_card(model: Any, path: Path, size: int) -> Path:
    """Adds a calibrant block, without which nothing is logged."""
    import onnx

    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    card = ModelCard(
        tuple(f"class {k}" for k in range(classes)), Preprocessing((size, size), size), name=path.stem,
        input=InputSpec("images", "float32", "NCHW"),
    )  # fmt: skip
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, card.to_json()
    onnx.save(model, path)
    return path


class Raw:
    """onnxruntime alone on the server's core, one thread."""

    def __init__(self, path: Path) -> None:
        os.sched_setaffinity(0, {SERVER})
        self.session = Session(path, threads=1)

    def feeds(self, rows: int) -> dict[str, Any]:
        feeds = self.session.blank(rows)
        assert feeds is not None
        rng = np.random.default_rng(0)
        return {k: rng.normal(size=v.shape).astype(v.dtype) for k, v in feeds.items()}

    def rate(self, *, seconds: float = 0.8, sizes: tuple[int, ...] = (1, 2, 4, 8, 16)) -> dict[str, float]:
        """Rows a second by wall and by CPU time, at the best batch size; means over as many seconds for each."""
        os.sched_setaffinity(0, {SERVER})
        best = {"wall": 0.0, "cpu": 0.0}
        for rows in sizes:
            feeds = self.feeds(rows)
            self.session.run(feeds)
            wall, cpu, n = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - wall < seconds:
                self.session.run(feeds)
                n += rows
            best["wall"] = max(best["wall"], n / (time.perf_counter() - wall))
            best["cpu"] = max(best["cpu"], n / (time.process_time() - cpu))
        return best

    def alone(self, *, seconds: float) -> list[float]:
        """Seconds that runs of one row took."""
        os.sched_setaffinity(0, {SERVER})
        feeds = self.feeds(1)
        return _turn(lambda: self.session.run(feeds), seconds)


class Caller:
    """One connection, one request at a time; `size` of the answers, where they have no head that says it."""

    def __init__(self, address: tuple[str, int], data: bytes, size: int | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data, self.size = data, size
        self.buffer = memoryview(bytearray(1 << 20))

    def alone(self, *, seconds: float) -> list[float]:
        """Seconds from the first byte sent to the last one read."""
        os.sched_setaffinity(0, {CALLERS})
        return _turn(self._ask, seconds)

    def _ask(self) -> None:
        self.socket.sendall(self.data)
        have, want = 0, self.size or 1
        while have < want:
            got = self.socket.recv_into(self.buffer[have:])
            have += got
            if not got:
                raise SystemExit("the connection was closed")
            if self.size is None:
                head, end, _ = bytes(self.buffer[: min(have, 4096)]).partition(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"a request failed: {head[:200]!r}")
                if end:
                    want = len(head) + 4 + int(head.split(b"content-length: ")[1].split(b"\r\n")[0])


def bare_loop(path: Path, bytes_: int, pipe: Connection) -> None:
    """In a process of its own: receive, run, send."""
    raw = Raw(path)
    (name, blank), *_ = raw.feeds(1).items()
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send((listener.getsockname(), sum(v.nbytes for v in raw.session.run({name: blank}).values())))
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        buffer, have = np.empty(bytes_, np.uint8), 0
        while have < bytes_:
            got = connection.recv_into(buffer.data[have:])
            if not got:
                return
            have += got
        outputs = raw.session.run({name: buffer[-blank.nbytes :].view(blank.dtype).reshape(blank.shape)})
        connection.sendall(b"".join(v.tobytes() for v in outputs.values()))


def _turn(call: Callable[[], Any], seconds: float) -> list[float]:
    took, end = [], time.perf_counter() + seconds
    for _ in range(3):  # after the other side's turn the caches are cold
        call()
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return took


def served(path: Path, clients: int, seconds: float, *extra: str) -> dict[str, Any]:
    os.sched_setaffinity(0, {SERVER})  # inherited by the server
    with running(path, arguments=["--threads", "1", "--name", "m", "--quiet", *extra]) as server:
        os.sched_setaffinity(0, {CALLERS})
        process = psutil.Process(server.pid)

        def stats() -> dict[str, Any]:
            found: dict[str, Any] = httpx.get(f"{server.url}/v2/models/m/stats").json()["model_stats"][0]
            return found

        inputs = httpx.get(f"{server.url}/v2/models/m").json()["inputs"]
        config = httpx.get(f"{server.url}/v2/models/m/config").json()
        data = request_bytes(server.url, "m", inputs, rows=1, binary=True)
        asyncio.run(run(server.url, data, Load(clients=clients, seconds=0.5)))
        before, count = process.cpu_times(), stats()
        outcome = asyncio.run(run(server.url, data, Load(clients=clients, seconds=seconds)))
        after, count2 = process.cpu_times(), stats()
        if outcome.failed or not outcome.ok:
            raise SystemExit(f"requests failed: {outcome.errors}")
        n, runs = (count2[key] - count[key] for key in ("inference_count", "execution_count"))
        cpu = after.user + after.system - before.user - before.system
        return {
            "rate": outcome.rate, "cpu_rate": n / cpu, "mean_batch": n / max(1, runs),
            "p50_ms": outcome.percentile(50), "p99_ms": outcome.percentile(99),
            "cap": int(config["parameters"]["batch_cap"]["string_value"]),
            "rss_mib": process.memory_info().rss / 2**20,
        }  # fmt: skip


def share(raw: Raw, path: Path, clients: int, seconds: float, repeats: int) -> dict[str, Any]:
    rows = []
    for _ in range(repeats):
        alone, got = raw.rate(), served(path, clients, seconds)
        ideal = 1e3 * clients / alone["wall"]
        rows.append({
            "raw": alone["wall"], "share": got["rate"] / alone["wall"], "share_cpu": got["cpu_rate"] / alone["cpu"],
            "ideal_p50_ms": ideal, "p99 / ideal p50": got["p99_ms"] / ideal, **got,
        })  # fmt: skip
    return {**_median(rows), "repeats": rows}


def alone(raw: Raw, path: Path, seconds: float, repeats: int) -> dict[str, Any]:
    """`repeats` servers, each for as many turns of a quarter of a second as fit into twice `seconds`."""
    turns: list[tuple[list[float], ...]] = []
    for _ in range(repeats):
        os.sched_setaffinity(0, {SERVER})
        with running(path, arguments=["--threads", "1", "--name", "m", "--quiet"]) as server:
            inputs = httpx.get(f"{server.url}/v2/models/m").json()["inputs"]
            data = request_bytes(server.url, "m", inputs, rows=1, binary=True)
            ours, theirs = multiprocessing.Pipe()
            spawn = multiprocessing.get_context("spawn")
            loop = spawn.Process(target=bare_loop, args=(path, len(data), theirs), daemon=True)
            loop.start()
            address, size = ours.recv()
            bare, caller = Caller(address, data, size), Caller((server.host, server.port), data)
            for _ in range(max(1, int(4 * seconds))):
                turns.append(tuple(side.alone(seconds=0.25) for side in (raw, bare, caller)))
            bare.socket.close()
            loop.join()
    medians = np.array([[statistics.median(side) for side in turn] for turn in turns])
    added = 1e3 * (medians - medians[:, :1])
    got = 1e3 * np.concatenate([turn[2] for turn in turns])
    return {
        "raw_ms": 1e3 * float(np.median(medians[:, 0])), "p50_ms": float(np.median(got)),
        "p99_ms": float(np.quantile(got, 0.99)), "added_ms": float(np.median(added[:, 2])),
        "bare_socket_added_ms": float(np.median(added[:, 1])), "turns": added[:, 1:].tolist(),
    }  # fmt: skip


def caps(path: Path, clients: int, seconds: float, repeats: int, fixed: tuple[int, ...]) -> dict[str, Any]:
    rates: dict[str, list[float]] = {}
    chosen = []
    for _ in range(repeats):
        for cap in (None, *fixed):
            got = served(path, clients, seconds, *(() if cap is None else ("--batch-cap", str(cap))))
            rates.setdefault("measured" if cap is None else str(cap), []).append(got["rate"])
            chosen += [got["cap"]] if cap is None else []
    found: dict[str, Any] = {name: statistics.median(values) for name, values in rates.items()}
    best = max(value for name, value in found.items() if name != "measured")
    return {"chosen": chosen, "rates": found, "measured / best": found["measured"] / best}


def logging(path: Path, clients: int, seconds: float, repeats: int) -> dict[str, Any]:
    lost, lost_cpu = [], []
    for turn in range(repeats + 2):
        pair = {}
        for logged in (True, False) if turn % 2 else (False, True):
            with tempfile.TemporaryDirectory() as log:
                pair[logged] = served(path, clients, seconds, *(("--feedback-log", log) if logged else ()))
        lost.append(1 - pair[True]["rate"] / pair[False]["rate"])
        lost_cpu.append(1 - pair[True]["cpu_rate"] / pair[False]["cpu_rate"])
    return {"lost": statistics.median(lost), "lost_cpu": statistics.median(lost_cpu), "pairs": lost}


def _median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--caps", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--weights", type=Path, help="safetensors file of EfficientNet-Lite0")
    parser.add_argument("--keep", type=Path, help="write the model there and measure nothing")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    report: dict[str, Any] = {"model": asked.model, "clients": asked.clients, "asked": ASKED}
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "m.onnx"
        if asked.model == "small":
            small_model(path)
        elif asked.model == "lite0":
            lite0(path, asked.weights)
        else:
            path = Path(asked.model)
        if asked.keep:
            return
        raw = Raw(path)
        calls = {
            "share": lambda: share(raw, path, asked.clients, asked.seconds, asked.repeats),
            "alone": lambda: alone(raw, path, asked.seconds, asked.repeats),
            "caps": lambda: caps(path, asked.clients, asked.seconds, asked.repeats, tuple(asked.caps)),
            "logging": lambda: logging(path, asked.clients, asked.seconds, asked.repeats),
        }
        for part in asked.parts:
            report[part] = calls[part]()
            print(part, _shown(report[part]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2))


def _shown(found: dict[str, Any]) -> str:
    flat = {**found, **found.get("rates", {})}
    flat.pop("rates", None)
    cells = []
    for name, value in flat.items():
        if isinstance(value, float | int):
            bar = ASKED.get(name)
            note = (
                f" (asked {bar if isinstance(bar, str) else ', '.join(f'{k} {v}' for k, v in bar.items())})"
                if bar
                else ""
            )
            cells.append(f"{name} {value:.3f}{note}" if isinstance(value, float) else f"{name} {value}")
        elif name == "chosen":
            cells.append(f"chosen {value}")
    return "  ".join(cells)


if __name__ == "__main__":
    main()
