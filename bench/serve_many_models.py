"""A folder of many small models: until the port answers, until all are ready, and what that takes.

    python bench/serve_many_models.py --models 200

Copies of one deployed file, each with a name of its own inside so that no measured curve is shared; the store of curves
is empty at the first start and full at the second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

from calibrant.artifacts.model_card import KEY
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_rewrite import rewrite
from calibrant.serve.processes.listener import probe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a small deployed file")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        models.mkdir()
        card = OnnxFile.open(options.file).card()
        for n in range(options.models):
            text = replace(card, name=f"m{n}").to_json()
            rewrite(OnnxFile.open(options.file), models / f"m{n}.onnx", metadata=lambda _, text=text: {KEY: text})
        os.environ["XDG_CACHE_HOME"] = folder
        for start in ("first", "second"):
            print(start, "start:", json.dumps(once(models, options.threads)))


def once(models: Path, threads: int | None) -> dict[str, float]:
    port = probe("127.0.0.1", 0)
    command = [sys.executable, "-m", "calibrant", "serve", str(models), "--port", str(port), "--quiet"]
    begun = time.monotonic()
    process = subprocess.Popen([*command, *(["--threads", str(threads)] if threads else [])], stdout=subprocess.DEVNULL)
    try:
        live = until(f"http://127.0.0.1:{port}/v2/health/live") - begun
        ready = until(f"http://127.0.0.1:{port}/v2/health/ready") - begun
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if ":" in line
        )
        ticks = sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        return {
            "live_s": round(live, 2), "ready_s": round(ready, 2), "cpu_s": ticks / os.sysconf("SC_CLK_TCK"),
            "threads": int(status["Threads"]), "MiB": int(status["VmRSS"].split()[0]) // 1024,
        }  # fmt: skip
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def until(url: str) -> float:
    end = time.monotonic() + 600
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                if reply.status == 200:
                    return time.monotonic()
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    raise SystemExit(f"{url} did not answer in ten minutes")


if __name__ == "__main__":
    main()
