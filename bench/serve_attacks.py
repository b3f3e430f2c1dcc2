"""Bad neighbours of one server: what a good caller beside them sees, and what memory it takes.

    python bench/serve_attacks.py [--side 64] [--seconds 4] [--callers 4] [--only TEXT] [--json PATH]

A small network whose answer is cheap, so that waiting is the server's or the machine's. Four callers ask at some 250
requests a second each, first alone and then beside an attacker that sends the same again and again; the ratio of the
99th percentiles is printed. On two cores the attacker takes a part of the machine as well: it runs at the lowest
priority, which leaves what the server itself does. `--side`: pixels; small networks refuse large JSON by its length.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import serve_soak
from calibrant.serve.processes.background import Running, running

CHUNK = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
INFER = "/v2/models/soak/infer"
ATTACKER = """
import http.client, os, socket, sys
os.nice(19)
body = open(sys.argv[3], "rb").read()
size = "" if "chunked" in sys.argv[5] else f"Content-Length: {len(body)}\\r\\n"
head = f"POST {sys.argv[4]} HTTP/1.1\\r\\nHost: a\\r\\n{size}{sys.argv[5]}\\r\\n"
text = head.encode() + body
while True:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as s:
            s.sendall(text)
            answer = http.client.HTTPResponse(s)
            answer.begin()
            print(answer.status, flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


def bodies(side: int) -> dict[str, tuple[bytes, str, str]]:
    """Body, address and header lines of each attack."""
    head = b'--b\r\nContent-Disposition: form-data; name="x"; filename="a"\r\n\r\n'
    form = "Content-Type: multipart/form-data; boundary=b\r\n"
    binary = "Inference-Header-Content-Length: 0\r\n"
    return {
        **{name: (text, INFER, "") for name, text in tensors(side).items()},
        "binary data, 60 MB": (b"a" * 60_000_001, INFER, binary),
        "a picture of 60 MB, none": (b"a" * 60_000_000, "/predict", ""),
        "a form of 60 MB": (head + b"a" * 60_000_000 + b"\r\n--b--\r\n", "/predict", form),
        "a form of 32 x 1.8 MB": ((head + b"a" * 1_800_000 + b"\r\n") * 32 + b"--b--\r\n", "/predict", form),
        "a picture of 60 MB, in chunks": (CHUNK * 915 + b"0\r\n\r\n", "/predict", "Transfer-Encoding: chunked\r\n"),
        "17 x 64 MiB announced": (b"", "", ""),
        "500 x 64 MiB announced": (b"", "", ""),
    }


def tensors(side: int) -> dict[str, bytes]:
    def of(data: bytes) -> bytes:
        shape = f'"shape":[1,3,{side},{side}],"datatype":"FP32"'.encode()
        return b'{"inputs":[{"name":"images",' + shape + b',"data":' + data + b"}]}"

    return {
        "lists, 60 MB": of(b"[" + b"[7]," * 15_000_000 + b"0]"),
        "lists, 30 MB": of(b"[" + b"[7]," * 7_500_000 + b"0]"),
        "lists, 16 MB": of(b"[" + b"[7]," * 4_100_000 + b"0]"),
        "whole numbers, 30 MB": of(b"[" + b"7," * 15_000_000 + b"0]"),
        "numbers, 20 MB": of(b"[" + b"0.123456," * 2_200_000 + b"0]"),
        "a text, 30 MB": of(b'"' + b"a" * 30_000_000 + b'"'),
        "lists, 250 KB": of(b"[" + b"[7]," * 62_000 + b"0]"),
    }


def good(server: Running, seconds: float, callers: int, side: int) -> tuple[float, float, int]:
    """Median and 99th percentile in ms, and how many failed."""
    pixels = np.random.default_rng(1).random((1, 3, side, side), np.float32)
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "FP32"}
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": pixels.nbytes}}]}).encode()
    body, times, failed = head + pixels.tobytes(), list[float](), list[object]()
    end = time.monotonic() + seconds

    def run() -> None:
        caller = http.client.HTTPConnection(server.host, server.port, timeout=60)
        while time.monotonic() < end:
            start = time.monotonic()
            try:
                caller.request("POST", INFER, body, {"Inference-Header-Content-Length": str(len(head))})
                answer = caller.getresponse()
                answer.read()
                if answer.status != 200:
                    failed.append(answer.status)
            except OSError as error:
                failed.append(error)
                caller.close()
            times.append(time.monotonic() - start)
            time.sleep(0.003)
        caller.close()

    threads = [threading.Thread(target=run) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    median, most = 1e3 * np.percentile(times, [50, 99])
    return float(median), float(most), len(failed)


@contextlib.contextmanager
def attacker(server: Running, body: Path, address: str, more: str) -> Any:
    said: list[str] = []
    command = [sys.executable, "-c", ATTACKER, server.host, str(server.port), str(body), address, more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with contextlib.suppress(OSError):  # a session of its own has a share of its own where the kernel groups by session
        Path(f"/proc/{process.pid}/autogroup").write_text("19")
    time.sleep(0.3)
    try:
        yield said
    finally:
        process.kill()
        said += process.communicate()[0].splitlines()


@contextlib.contextmanager
def announced(server: Running, number: int) -> Any:
    """Sockets that announce 64 MiB and send one byte."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            s = stack.enter_context(socket.create_connection((server.host, server.port), timeout=60))
            with contextlib.suppress(OSError):
                s.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {64 << 20}\r\n\r\n{{".encode())
        yield []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    side = serve_soak.SIZE = asked.side
    serve_soak.WEIGHTS = np.random.default_rng(3).normal(0, 0.1, (serve_soak.CLASSES, 3 * side * side)).astype("f4")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body"
        model = serve_soak.write_model(Path(folder) / "soak.onnx", "")
        with running(model, arguments=["--threads", "1", "--quiet"]) as server:
            process = psutil.Process(server.pid)
            good(server, 2.0, asked.callers, side)
            chosen = {name: found for name, found in bodies(side).items() if asked.only in name}
            for name, (text, address, more) in chosen.items():
                body.write_bytes(text)
                _, before, _ = good(server, asked.seconds / 2, asked.callers, side)
                beside = attacker(server, body, address, more) if text else announced(server, int(name.split()[0]))
                with beside as said:
                    median, after, failed = good(server, asked.seconds, asked.callers, side)
                    memory = process.memory_info().rss >> 20
                told = sorted(set(said))
                row = {"attack": name, "p99_alone_ms": before, "p50_ms": median, "p99_ms": after,
                       "ratio": after / before, "failed": failed, "mib": memory, "told": told}  # fmt: skip
                rows.append(row)
                print(
                    f"{name:24} p99 {before:6.2f} -> {after:6.2f} ms ({after / before:5.2f} x), p50 {median:5.2f}, "
                    f"{failed} failed, {memory} MiB, attacker was told {', '.join(told) or '-'}"
                )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
