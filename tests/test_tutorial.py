"""The newcomer: docs/tutorial.md, followed to the letter by an installed package, far from the checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
pytestmark = pytest.mark.slow


def steps() -> list[str]:
    """The page's commands and its Python, in the page's order."""
    found = re.findall(r"^    ([^\n]+)$|^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [command or code for command, code in found]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the built wheel; the libraries are those that are here."""
    pytest.importorskip("build")
    pytest.importorskip("timm")
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    home = tmp_path_factory.mktemp("newcomer")
    tree = home / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(home), str(tree)]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "env")], check=True)
    python = home / "env" / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(next(home.glob("*.whl")))]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, capture_output=True)
    own = next((home / "env").glob("lib/python*/site-packages"))
    (own / "libraries.pth").write_text(
        sysconfig.get_path("purelib")
    )  # its own .pth files, the checkout's, are not read
    shutil.rmtree(tree)
    return home


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hub's cache with the weights of one small network: what a newcomer's first run would fetch."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    cache = tmp_path_factory.mktemp("hub") / "hub" / "models--timm--test_resnet.r160_in1k"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("local")
    (cache / "snapshots" / "local").mkdir(parents=True)
    save_file(timm.create_model("test_resnet").state_dict(), cache / "snapshots" / "local" / "model.safetensors")
    return cache.parents[1]


def answered(url: str, process: subprocess.Popen[Any]) -> None:
    for _ in range(600):
        assert process.poll() is None
        try:
            urllib.request.urlopen(url, timeout=5).read()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"{url} does not answer")


def test_a_newcomer_gets_from_pictures_to_a_watched_server(newcomer: Path, hub: Path, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.skip("no Chromium on this machine")
    draw, fit, serve, ask, tell, code, look = steps()
    http, board = free_port(), free_port()
    bin_ = newcomer / "env" / "bin"
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("CALIBRANT", "PYTHON", "PYTEST", "VIRTUAL"))}
    environment = {**keep, "PATH": f"{bin_}:{keep['PATH']}", "HF_HOME": str(hub), "XDG_CACHE_HOME": str(tmp_path / "c")}

    def run(line: str) -> str:
        line = line.replace(":8000", f":{http}")
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(line: str, *more: str) -> subprocess.Popen[Any]:
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(
            [bin_ / "calibrant", *shlex.split(line)[1:], *more], cwd=tmp_path, env=environment, **silent
        )  # type: ignore[call-overload, no-any-return]

    assert Path(run("python -c 'import calibrant; print(calibrant.__file__)'").strip()).is_relative_to(newcomer)
    run(draw)
    said = run(fit)
    assert "next: " + serve in said  # the page and the program say the same
    assert "next: " + look in said
    server = start(serve, "--port", str(http))
    try:
        answered(f"http://127.0.0.1:{http}/v2/health/ready", server)
        first = json.loads(run(ask))
        assert first["id"] == "first"
        assert 0.2 < first["predictions"][0]["confidence"] <= 1
        assert json.loads(run(tell)) == {"accepted": 1, "repeated": 0, "changed": 0, "unknown": []}
        (tmp_path / "ask.py").write_text(code.replace(":8000", f":{http}"))
        assert json.loads(run("python ask.py"))["accepted"] == 100
    finally:
        server.terminate()
        assert server.wait(60) == 0
    dashboard = start(look, "--port", str(board), "--no-browser")
    try:
        answered(f"http://127.0.0.1:{board}", dashboard)
        with playwright.sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            for address, words in (("", "model.onnx"), ("production", "101")):
                page.goto(f"http://127.0.0.1:{board}/{address}")
                page.get_by_text(words).first.wait_for(timeout=120_000)
                assert "Traceback" not in page.inner_text("body")
            browser.close()
    finally:
        dashboard.terminate()
        dashboard.wait(60)
