"""The wheel in an environment of its own: what `pip install calibrant[cpu]` gives, without torch."""

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

absent = ["torch", "onnx", "timm", "netcal", "streamlit", "sklearn", "pyarrow", "scipy", "matplotlib"]
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


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy, so that no build/ of the checkout gets into the wheel
    ignored = shutil.ignore_patterns(".venv", ".git", "build", "*.egg-info", "__pycache__", "runs", "calibrant-demo")
    shutil.copytree(ROOT, source, ignore=ignored)
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", str(folder), str(source)], check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def base_python(wheel: Path) -> Path:
    """A new environment with the wheel and its base requirements from the package index."""
    venv.create(wheel.parent / "venv", with_pip=False)
    python = wheel.parent / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([*PIP, "--python", str(python), "install", str(wheel)], check=True)
    return python


def install(python: Path, *what: str) -> None:
    subprocess.run([*PIP, "--python", str(python), *what], check=True)


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(python), *arguments], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )


def megabytes(python: Path) -> float:
    """Of site-packages, without the byte code that running it writes."""
    files = (f for f in python.parents[1].rglob("*") if f.is_file() and not f.is_symlink() and f.suffix != ".pyc")
    return sum(f.stat().st_size for f in files) / 1e6


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_base_install_serves_without_torch_in_little_memory(
    base_python: Path, tmp_path: Path, tiny_model: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    model, pixels, probabilities = tiny_model
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    (tmp_path / "body.json").write_text(json.dumps({"inputs": [entry]}))
    none = run(base_python, "-m", "calibrant", "serve", str(model), cwd=tmp_path)
    assert none.returncode == 2
    assert none.stderr.strip().endswith("run: pip install 'calibrant[cpu]'  (or 'calibrant[gpu]' for NVIDIA)"), (
        none.stderr
    )

    install(base_python, "install", f"{next(base_python.parents[2].glob('*.whl'))}[cpu]")
    assert megabytes(base_python) < 200
    served = run(base_python, "-c", PROBE, str(model), str(tmp_path / "body.json"), cwd=tmp_path)
    assert served.returncode == 0, served.stderr
    report = json.loads(served.stdout.splitlines()[-1])
    assert report["found"] == []
    assert report["ready"] < 10
    if report["peak_mib"] is not None:
        assert report["peak_mib"] < 250
    output = next(o for o in report["reply"]["outputs"] if o["name"] == "probabilities")
    np.testing.assert_allclose(np.array(output["data"]).reshape(output["shape"]), probabilities, atol=1e-6)
    assert "onnxruntime:" not in report["log"], "onnxruntime wrote to stderr"
    print(f"ready in {report['ready']:.2f} s, peak {report['peak_mib']:.0f} MiB")  # noqa: T201

    # What only the extra `evaluate` can do says so in one line, before it does anything.
    (tmp_path / "rows.parquet").write_bytes(b"")
    told = run(base_python, "-m", "calibrant", "evaluate", "rows.parquet", cwd=tmp_path)
    assert (told.returncode, told.stderr.count("\n")) == (2, 1), told.stderr
    assert "pip install 'calibrant[evaluate]'" in told.stderr


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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="onnxruntime-gpu has wheels for Linux and Windows")
def test_a_runtime_whose_twin_was_removed_says_how_to_repair_it(
    base_python: Path, tmp_path: Path, tiny_model: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    install(base_python, "install", "onnxruntime")
    install(base_python, "install", "--no-deps", "onnxruntime-gpu")
    install(base_python, "uninstall", "-y", "onnxruntime")  # takes files of its twin along
    broken = run(base_python, "-m", "calibrant", "serve", str(tiny_model[0]), cwd=tmp_path)
    assert broken.returncode == 2
    assert "run: pip install --force-reinstall --no-deps onnxruntime-gpu" in broken.stderr, broken.stderr
