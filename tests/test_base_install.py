"""The wheel in an environment of its own: what `pip install calibrant` gives, without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]

# Runs inside the fresh environment, away from the checkout.
PROBE = """
import importlib.util, json, sys, time, urllib.request
from pathlib import Path
from calibrant.serve.processes.background import running

absent = ["torch", "onnx", "timm", "netcal", "streamlit", "sklearn"]
found = [name for name in absent if importlib.util.find_spec(name)]
body = Path(sys.argv[2]).read_bytes()
start = time.monotonic()
with running(sys.argv[1], arguments=["--threads", "1"]) as server:
    ready = time.monotonic() - start
    request = urllib.request.Request(f"{server.url}/v2/models/birds/infer", body)
    for _ in range(200):
        reply = json.load(urllib.request.urlopen(request))
    status = Path(f"/proc/{server.pid}/status").read_text() if Path("/proc").is_dir() else ""
    log = server.log.read_text()
peak = next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), None)
print(json.dumps({"found": found, "ready": ready, "peak_mib": peak, "reply": reply, "log": log}))
"""


@pytest.fixture(scope="module")
def base_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and its base requirements from the package index."""
    folder = tmp_path_factory.mktemp("base")
    source = folder / "source"  # a copy, so that no build/ of the checkout gets into the wheel
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", "__pycache__", "runs")
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), str(source)], check=True)
    wheel = next(folder.glob("*.whl"))
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([*pip, "--python", str(python), "install", str(wheel)], check=True)
    return python


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_base_install_serves_without_torch_in_little_memory(
    base_python: Path, tmp_path: Path, tiny_model: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    model, pixels, probabilities = tiny_model
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    (tmp_path / "body.json").write_text(json.dumps({"inputs": [entry]}))
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = subprocess.run(
        [str(base_python), "-c", PROBE, str(model), str(tmp_path / "body.json")],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["found"] == []
    assert report["ready"] < 10
    if report["peak_mib"] is not None:
        assert report["peak_mib"] < 250
    output = next(o for o in report["reply"]["outputs"] if o["name"] == "probabilities")
    np.testing.assert_allclose(np.array(output["data"]).reshape(output["shape"]), probabilities, atol=1e-6)
    assert "onnxruntime:" not in report["log"], "onnxruntime wrote to stderr"
    print(f"ready in {report['ready']:.2f} s, peak {report['peak_mib']:.0f} MiB")  # noqa: T201


@pytest.fixture
def tiny_model(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """The small classifier of the serving tests, some pictures, and what it must say about them."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("base_install_tiny", ROOT / "tests" / "serve" / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    pixels = tiny.pictures(2)
    return tiny.write(tmp_path / "birds.onnx"), pixels, tiny.expected(pixels)
