"""What watching features costs the server: processor time of a request with --feature-drift beside one without.

    python bench/feature_drift_cost.py [--widths 64 512 2048] [--rounds 8] [--clients 1 16]

Both servers run at once on one core, with --feedback-log, and take turns under full load from the other core; the
figures are medians over rounds of processor time, so other work on the machine disturbs them less. Callers ask for the
probabilities only. The network is a layer of that width: what the server does is the greatest part of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from calibrant.artifacts.model_card import KEY, InputSpec, ModelCard
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.callers.generator import Load, run
from calibrant.serve.planning.measure import processor_seconds
from calibrant.serve.processes.background import running

CLASSES, SIZE = 10, 16


def write_model(path: Path, width: int) -> Path:
    """relu(A x) are the features."""
    rng = np.random.default_rng(0)
    values = 3 * SIZE * SIZE
    constants = {
        "A": rng.normal(0, values**-0.5, (width, values)).astype(np.float32),
        "W": rng.normal(0, 2 * width**-0.5, (CLASSES, width)).astype(np.float32),
    }
    sizes = {"probabilities": CLASSES, "logits": CLASSES, "features": width}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n]) for name, n in sizes.items()]
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("Gemm", ["flat", "A"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["features"]),
        helper.make_node("Gemm", ["features", "W"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    image = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "wide", [image], outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="calibrant")
    model.ir_version = 8
    card = ModelCard(tuple(f"class-{k}" for k in range(CLASSES)), Preprocessing(size=(SIZE, SIZE), resize=SIZE),
                     name="wide", input=InputSpec("images", "float32", "NCHW"))  # fmt: skip
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, card.to_json()
    path.write_bytes(model.SerializeToString())
    return path


def request(url: str) -> bytes:
    x = np.random.default_rng(1).normal(size=(1, 3, SIZE, SIZE)).astype(np.float32)
    tensor = {"name": "images", "shape": list(x.shape), "datatype": "FP32",
              "parameters": {"binary_data_size": x.nbytes}}  # fmt: skip
    output = {"name": "probabilities", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    lines = (
        f"POST /v2/models/wide/infer HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + x.nbytes}\r\n\r\n"
    )
    return lines.encode() + head + x.tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    for width in asked.widths:
        with tempfile.TemporaryDirectory() as folder:
            path = write_model(Path(folder) / "wide.onnx", width)
            common = ["--quiet", "--threads", "1", "--no-huge-pages", "--batch-cap", "16", "--feedback-log"]
            os.sched_setaffinity(0, cores[:1])
            with (
                running(path, arguments=[*common, f"{folder}/off"]) as off,
                running(path, arguments=[*common, f"{folder}/on", "--feature-drift"]) as on,
            ):
                os.sched_setaffinity(0, cores[1:])
                for clients in asked.clients:
                    spent: dict[str, list[float]] = {"off": [], "on": []}
                    for _ in range(asked.rounds):
                        for name, server in (("off", off), ("on", on)):
                            before = processor_seconds(server.pid)
                            load = Load(clients=clients, seconds=1.5, warm_seconds=0.0)
                            outcome = asyncio.run(run(server.url, request(server.url), load))
                            spent[name].append(1e6 * (processor_seconds(server.pid) - before) / outcome.ok)
                    each = {name: round(statistics.median(values), 1) for name, values in spent.items()}
                    share = statistics.median(a / b for a, b in zip(spent["off"], spent["on"], strict=True))
                    row = {"width": width, "clients": clients, "microseconds": each, "share": round(share, 3)}
                    print(json.dumps(row), flush=True)
        os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    main()
