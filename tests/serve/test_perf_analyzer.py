"""NVIDIA's perf_analyzer, where it is installed (it comes with the wheel tritonclient 2.41 for Linux)."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import pytest

from calibrant.serve.processes.background import running

TOOL = shutil.which("perf_analyzer")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(TOOL is None, reason="perf_analyzer is not installed")]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_measures_this_server_at_several_concurrencies(model_file: Path, protocol: str, tmp_path: Path) -> None:
    if protocol == "grpc":
        pytest.importorskip("hpack")
    table = tmp_path / "out.csv"
    arguments = ["--threads", "1", *(["--grpc-port", "0"] if protocol == "grpc" else [])]
    with running(model_file, arguments=arguments) as server:
        port = server.port if protocol == "http" else server.grpc_port
        asked = [
            str(TOOL), "-m", "birds", "-i", protocol, "-u", f"{server.host}:{port}", "--shape", "images:16,16,3",
            "--concurrency-range", "1:9:4", "-p", "800", "-s", "90", "-r", "4", "-f", str(table),
        ]  # fmt: skip
        for _ in range(3):  # about one run in ten gives no stable figure on a busy machine
            done = subprocess.run(asked, capture_output=True, text=True, timeout=180)
            rows = list(csv.DictReader(table.read_text().splitlines())) if table.is_file() else []
            if done.returncode == 0 and len(rows) == 3:
                break
    said = done.stdout[-3000:] + done.stderr[-2000:]
    assert "Server side statistics" not in said, said
    assert sorted(int(row["Concurrency"]) for row in rows) == [1, 5, 9], said
    assert all(float(row["Inferences/Second"]) > 0 for row in rows)
