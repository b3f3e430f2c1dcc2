"""Share of onnxruntime's own speed that a client of the server gets: one core for the server, one for the callers.

    python bench/serve_share.py [--model small|lite0|PATH] [--clients 64] [--repeats 3] [--json PATH]

`share` is by wall time on the server's core, `share_cpu` by CPU seconds, which a busy neighbour disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from calibrant.serve.background import running
from calibrant.serve.loadgen import Load, request_bytes, run
from calibrant.serve.session import Session


def small_model(path: Path, size: int = 96) -> Path:
    """A CNN of about a third of a millisecond: 110 KB requests, float NCHW."""
    import onnx
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
    onnx.save(model, path)
    return path


def lite0(path: Path) -> Path:
    """EfficientNet-Lite0 with random weights: the speed is that of any."""
    import timm
    import torch

    network = timm.create_model("tf_efficientnet_lite0", num_classes=100).eval()
    batch = torch.export.Dim("N", min=1, max=4096)
    torch.onnx.export(
        torch.nn.Sequential(network, torch.nn.Softmax(-1)), (torch.zeros(2, 3, 224, 224),), path, dynamo=True,
        input_names=["images"], output_names=["probabilities"], dynamic_shapes=({0: batch},), external_data=False,
    )  # fmt: skip
    return path


def raw(path: Path, rows: int, seconds: float, core: int) -> tuple[float, float]:
    """Images a second by wall and by CPU of the session alone on one core, one thread."""
    os.sched_setaffinity(0, {core})
    session = Session(path, threads=1)
    feeds = session.blank(rows)
    assert feeds is not None
    feeds = {k: np.random.default_rng(0).normal(size=v.shape).astype(v.dtype) for k, v in feeds.items()}
    for _ in range(5):
        session.run(feeds)
    best_wall, best_cpu, end = 0.0, 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        wall, cpu, n = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - wall < 0.25:
            session.run(feeds)
            n += rows
        best_wall = max(best_wall, n / (time.perf_counter() - wall))
        best_cpu = max(best_cpu, n / (time.process_time() - cpu))
    return best_wall, best_cpu


def served(path: Path, clients: int, seconds: float, core: int, cap: int | None, extra: list[str]) -> dict[str, Any]:
    os.sched_setaffinity(0, {core})  # inherited by the server
    arguments = ["--threads", "1", "--name", "m", "--quiet", *extra, *(["--batch-cap", str(cap)] if cap else [])]
    with running(path, arguments=arguments) as server:
        os.sched_setaffinity(0, {1 - core})
        process = psutil.Process(server.pid)
        import httpx

        inputs = httpx.get(f"{server.url}/v2/models/m").json()["inputs"]
        data = request_bytes(server.url, "m", inputs, rows=1, binary=True)
        asyncio.run(run(server.url, data, Load(clients=clients, seconds=0.5)))
        before, count = process.cpu_times(), httpx.get(f"{server.url}/v2/models/m/stats").json()
        outcome = asyncio.run(run(server.url, data, Load(clients=clients, seconds=seconds)))
        after, count2 = process.cpu_times(), httpx.get(f"{server.url}/v2/models/m/stats").json()
        config = httpx.get(f"{server.url}/v2/models/m/config").json()
        n = count2["model_stats"][0]["inference_count"] - count["model_stats"][0]["inference_count"]
        runs = count2["model_stats"][0]["execution_count"] - count["model_stats"][0]["execution_count"]
        cpu = after.user + after.system - before.user - before.system
        return {
            **outcome.to_dict(), "cpu_rate": n / cpu, "cap": int(config["parameters"]["batch_cap"]["string_value"]),
            "mean_batch": n / max(1, runs), "rss_mib": process.memory_info().rss / 2**20,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="small")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--caps", type=int, nargs="*", default=[], help="fixed caps to compare with the measured one")
    parser.add_argument("--extra", nargs="*", default=[], help="more arguments for calibrant serve")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build = {"small": small_model, "lite0": lite0}.get(asked.model)
        path = build(Path(folder) / "m.onnx") if build else Path(asked.model)
        rows: list[dict[str, Any]] = []
        for cap in [None, *asked.caps]:
            shares, cpu_shares, last = [], [], {}
            for _ in range(asked.repeats):  # interleaved: the machine's mood changes within a minute
                wall, cpu = max(raw(path, b, 1.0, 0) for b in (1, 8))
                last = served(path, asked.clients, asked.seconds, 0, cap, asked.extra)
                shares.append(last["requests_per_second"] / wall)
                cpu_shares.append(last["cpu_rate"] / cpu)
            rows.append({
                "cap": "measured" if cap is None else cap, "raw": wall, "share": statistics.median(shares),
                "share_cpu": statistics.median(cpu_shares), "server": last,
            })  # fmt: skip
            shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items() if k != "server"}
            brief = {k: round(v, 2) if isinstance(v, float) else v for k, v in last.items() if k != "errors"}
            print(shown, brief, file=sys.stdout, flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"model": asked.model, "clients": asked.clients, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
