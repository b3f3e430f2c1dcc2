"""gRPC beside HTTP: what a request costs the server, and whether batches form, at several numbers of callers.

    python bench/serve_grpc.py [--callers 1 4 16] [--seconds 3] [--repeats 5] [--tool PATH] [--json PATH]

One server with both fronts on one core, callers on the others. Requests of 110,592 bytes to a model that does next to
nothing, so that the front is most of what is measured. The two transports take turns. Judged by requests per CPU second
of the server, for the rate is often the caller's; and by rows a run. Callers are, one after the other:

perf_analyzer  NVIDIA's, in C++ (it comes with the wheel tritonclient 2.41 for Linux; left out where there is none). It
               gives each request an id, so HTTP has the JSON of each to parse, and gRPC a field to skip.
sockets        Ours, on plain sockets, which send the same bytes again and again: the best case of both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import hpack
import httpx
import numpy as np
import psutil

from calibrant.serve.callers.generator import Load, request_bytes, run
from calibrant.serve.grpc import frames as f
from calibrant.serve.grpc import wire
from calibrant.serve.processes.background import Running, running

SERVER = 0  # core
ASKED = {"share of HTTP's requests per CPU second": 0.80, "share of HTTP's rows a run": 0.80}  # at 16 callers
SIZE = 192


def trivial_model(path: Path) -> Path:
    """uint8 pictures of 110,592 bytes, of which one pixel is looked at."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants = {
        "from": np.array([0, 0], np.int64), "to": np.array([1, 1], np.int64), "axes": np.array([1, 2], np.int64),
        "W": np.random.default_rng(0).normal(0, 0.01, (3, 10)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Slice", ["images", "from", "to", "axes"], ["pixel"]),
        helper.make_node("Flatten", ["pixel"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["cast", "W"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "trivial", [helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", SIZE, SIZE, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


class GrpcCallers(asyncio.Protocol):
    """Several callers on one connection, six as in NVIDIA's client: each asks again when it has its answer."""

    def __init__(self, callers: int, message: bytes) -> None:
        self.callers, self.open = callers, True
        self._body = struct.pack(">BI", 0, len(message)) + message
        self._stream, self._rest = 1, b""
        self._encoder = hpack.Encoder()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(
            f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: 1 << 20}) + f.window_update(0, (1 << 31) - 70_000)
        )
        for _ in range(self.callers):
            self._ask()

    def _ask(self) -> None:
        fields = {":method": "POST", ":scheme": "http", ":path": "/inference.GRPCInferenceService/ModelInfer",
                  ":authority": "a", "te": "trailers", "content-type": "application/grpc"}  # fmt: skip
        block = self._block if self._stream > 3 else bytes(self._encoder.encode([*fields.items()]))
        self._block = block
        head = f.frame(f.HEADERS, f.END_HEADERS, self._stream, block)
        self._transport.write(head + f.frame(f.DATA, f.END_STREAM, self._stream, self._body))
        self._stream += 2

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= f.HEAD_SIZE:
            word, flags, stream = f.HEAD.unpack_from(data, at)
            if len(data) - at < f.HEAD_SIZE + (word >> 8):
                break
            at += f.HEAD_SIZE + (word >> 8)
            if word & 255 == f.HEADERS and flags & f.END_STREAM and self.open:
                self._ask()
        self._rest = data[at:]


async def _by_sockets(server: Running, callers: int, seconds: float) -> None:
    shape = (1, SIZE, SIZE, 3)
    pixels = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8).tobytes()
    tensor = wire.field(1, "images") + wire.field(2, "UINT8") + wire.packed(3, shape)
    message = wire.field(1, "m") + wire.message(5, tensor) + wire.message(7, pixels)
    loop = asyncio.get_running_loop()
    shares = [min(6, callers - n) for n in range(0, callers, 6)]
    made = [
        await loop.create_connection(lambda n=n: GrpcCallers(n, message), server.host, server.grpc_port) for n in shares
    ]
    await asyncio.sleep(seconds)
    for transport, protocol in made:
        protocol.open = False
        transport.close()


def ask(server: Running, caller: str, protocol: str, callers: int, seconds: float) -> None:
    if caller == "sockets" and protocol == "grpc":
        asyncio.run(_by_sockets(server, callers, seconds))
    elif caller == "sockets":
        inputs = httpx.get(f"{server.url}/v2/models/m").json()["inputs"]
        data = request_bytes(server.url, "m", inputs, rows=1, binary=True)
        asyncio.run(run(server.url, data, Load(clients=callers, seconds=seconds, warm_seconds=0.0)))
    else:
        port = server.port if protocol == "http" else server.grpc_port
        command = [
            caller, "-m", "m", "-i", protocol, "-u", f"{server.host}:{port}", "--shape", f"images:{SIZE},{SIZE},3",
            "--concurrency-range", str(callers), "-p", str(int(1000 * seconds)), "-s", "99", "-r", "1", "--async",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode not in (0, 2):  # 2: no stable figure, which one window is not to give
            raise SystemExit(f"perf_analyzer measured nothing: {done.stdout[-500:]}{done.stderr[-500:]}")


def measured(server: Running, caller: str, protocol: str, callers: int, seconds: float) -> dict[str, float]:
    """One window of load: requests per CPU second, and rows a run."""
    process = psutil.Process(server.pid)
    before, count = process.cpu_times(), _counts(server)
    ask(server, caller, protocol, callers, seconds)
    after, more = process.cpu_times(), _counts(server)
    cpu = after.user + after.system - before.user - before.system
    requests, runs = more[0] - count[0], more[1] - count[1]
    return {"requests per CPU second": requests / cpu, "rows a run": requests / runs, "requests": requests}


def _counts(server: Running) -> tuple[int, int]:
    found = httpx.get(f"{server.url}/v2/models/m/stats", timeout=60).json()["model_stats"][0]
    return found["inference_count"], found["execution_count"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tool", default=shutil.which("perf_analyzer"), help="perf_analyzer")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    kinds = {"perf_analyzer": asked.tool, "sockets": "sockets"}
    if asked.tool is None:
        print("perf_analyzer is not installed: pip install 'tritonclient==2.41', or give --tool PATH")
        del kinds["perf_analyzer"]
    cores = sorted(os.sched_getaffinity(0))
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = trivial_model(Path(folder) / "m.onnx")
        os.sched_setaffinity(0, {cores[SERVER]})
        with running(path, arguments=["--threads", "1", "--name", "m", "--quiet", "--grpc-port", "0"]) as server:
            os.sched_setaffinity(0, set(cores) - {cores[SERVER]})
            for kind, caller in kinds.items():
                for callers in asked.callers:
                    rows: dict[str, list[dict[str, float]]] = {"http": [], "grpc": []}
                    for _ in range(asked.repeats):
                        for protocol, found in rows.items():
                            found.append(measured(server, caller, protocol, callers, asked.seconds))
                    report[f"{kind} {callers}"] = _summary(kind, callers, rows)
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2))


def _summary(kind: str, callers: int, rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    medians = {p: {key: statistics.median(r[key] for r in found) for key in found[0]} for p, found in rows.items()}
    shares = {f"share of HTTP's {key}": statistics.median(
        grpc[key] / http[key] for grpc, http in zip(rows["grpc"], rows["http"], strict=True)
    ) for key in ("requests per CPU second", "rows a run")}  # fmt: skip
    print(f"{kind}, {callers} callers")
    for protocol, found in medians.items():
        print(f"  {protocol}: " + "  ".join(f"{key} {value:,.2f}" for key, value in found.items()))
    for name, value in shares.items():
        bar = f" (asked >= {ASKED[name]:.2f})" if callers == 16 else ""
        print(f"  {name} {value:.3f}{bar}", flush=True)
    return {**medians, **shares, "rows": rows}


if __name__ == "__main__":
    main()
