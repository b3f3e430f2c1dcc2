"""Runs as the pipeline writes them, and a real Chromium in front of a real server."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.calibration import Calibrator, fit
from calibrant.feedback import FeedbackWriter, Model
from calibrant.model_card import Prior
from calibrant.onnx_file import OnnxFile
from calibrant.predictions import Predictions, Source
from calibrant.preprocessing import Preprocessing

ROOT = Path(__file__).resolve().parents[2]
CLASSES = 10
# Names that would be pictures, formulas, bold text or tags if anything took them for markup.
HOSTILE = "a`![x](http://evil.example/p.png)<b>b</b>$x$**c**"


def logits_and_labels(rows: int, *, seed: int, sharpness: float = 2.0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Over-confident by `sharpness`, and not by the same in every region: no temperature makes it perfect."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(rows, CLASSES)) * rng.choice([0.6, 2.2, 4.0], size=(rows, 1))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    claimed = true * sharpness + 0.25 * rng.normal(size=true.shape)
    return claimed.astype(np.float32), labels.astype(np.int64)


def source(names: tuple[str, ...] | None = None, **more: Any) -> Source:
    names = names or tuple(f"leaf-{k:02d}" for k in range(CLASSES))
    prior = np.linspace(2, 1, len(names))
    return Source(names, tuple((prior / prior.sum()).tolist()), **more)


def write_run(
    folder: Path, *, rows: int = 3000, seed: int = 0, names: tuple[str, ...] | None = None, sharpness: float = 2.0,
    calibrator: bool = True, loss: str = "vace", ids: list[str] | None = None, data: Path | None = None,
) -> Path:  # fmt: skip
    """A run folder as `calibrant train` and `calibrant calibrate` leave it."""
    taus = tuple(np.linspace(0.8, 1.4, CLASSES).tolist()) if loss == "vace" else None
    about = source(names, class_temperatures=taus, model={"name": "resnet18", "run": folder.name})
    for k, split in enumerate(("val", "test")):
        logits, labels = logits_and_labels(rows, seed=2 * seed + k, sharpness=sharpness)
        own = (
            tuple(ids)
            if ids is not None
            else tuple(f"{about.class_names[y]}/{i:05d}.png" for i, y in enumerate(labels))
        )
        Predictions(own, labels, logits, about, split=(split,) * rows).write(
            folder / "predictions" / f"{split}.parquet"
        )
        if split == "val" and calibrator:
            fit("temperature", logits, labels).save(folder / "calibrator.json")
    config = {
        "kind": "run", "format_version": 1, "class_names": list(about.class_names),
        "config": {"data": {"path": str(data)} if data else {}, "loss": {"name": loss}},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    write_log(folder, epochs=6, seed=seed, loss=loss)
    return folder


def write_log(folder: Path, *, epochs: int, seed: int = 0, loss: str = "vace") -> None:
    rng = np.random.default_rng(seed)
    lines = []
    for epoch in range(1, epochs + 1):
        done = epoch / epochs
        extra: dict[str, Any] = {}
        if loss == "vace":
            middle = 1 + 0.1 * done
            quantiles = [middle - 0.3 * done, middle - 0.1 * done, middle, middle + 0.1 * done, middle + 0.4 * done]
            extra = {"tau_mean": middle, "tau_quantiles": quantiles}
        elif loss == "fedlas-ls":
            extra = {
                "overconfident_share": 0.3 + 0.2 * done, "underconfident_share": 0.6 - 0.2 * done,
                "flip_rate": None if epoch == 1 else 0.5 * (1 - done) + 0.02,
            }  # fmt: skip
        lines.append({
            "epoch": epoch, "update": 10 * epoch, "lr": 1e-3 * (1 - 0.9 * done), "train": {"loss": 2.3 - 1.5 * done},
            "val": {
                "accuracy": 0.3 + 0.5 * done + 0.01 * rng.normal(), "balanced_accuracy": 0.28 + 0.5 * done,
                "nll": 2 - done, "brier": 0.9 - 0.5 * done, "ece": 0.15 - 0.05 * done,
                "adaptive_ece": 0.14 - 0.05 * done,
                "over_ece": 0.1, "under_ece": 0.05 - 0.05 * done,
            },
            "loss": extra, "best": epoch == epochs - 1, "seconds": 4.5,
        })  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_tokens(run: Path, names: tuple[str, ...], *, pictures: int = 4, id_stem: str = "p") -> Path:
    """Token pictures as training a reduced transformer leaves them: 14 x 14 patches, three stages."""
    from PIL import Image

    folder = run / "tokens"
    folder.mkdir(parents=True)
    listed = []
    for k in range(pictures):
        Image.new("RGB", (4 * 112 + 12, 112), (40 * k % 255, 150, 90)).save(folder / f"{k:03d}.png")
        listed.append({
            "file": f"{k:03d}.png", "id": f"{id_stem}/{k}.png", "label": k % len(names), "predicted": 0,
            "confidence": 0.5 + 0.1 * k, "tokens": [98 - k, 49 - k, 25], "patches": [98 - k, 49 - k, 25],
        })  # fmt: skip
    (folder / "tokens.json").write_text(json.dumps({
        "kind": "tokens", "format_version": 1, "method": "evit", "merged": False, "cla": True, "split": "test",
        "class_names": list(names), "model_sha256": "0" * 64, "blocks": [3, 6, 9], "grid": [14, 14],
        "pictures": listed,
    }))  # fmt: skip
    return folder / "tokens.json"


# ---- server and browser ----


@dataclass
class Server:
    """`calibrant dashboard` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(15)
        if self.reader is not None:
            self.reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    @property
    def log(self) -> str:
        return "".join(self.lines)


def start_server(runs: Path, *arguments: str, cwd: Path | None = None) -> Server:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "dashboard", str(runs), "--port", "0", "--no-browser", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        cwd=cwd or runs,
    )  # fmt: skip
    server = Server(process, "")
    ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            server.lines.append(line)
            found = re.search(r"http://\S+:\d+", line)
            if found and not server.url:
                server.url = found[0]
                ready.set()
        ready.set()

    server.reader = threading.Thread(target=read, daemon=True)
    server.reader.start()
    if not ready.wait(60) or not server.url:
        server.stop()
        raise RuntimeError(f"the dashboard did not start:\n{server.log}")
    return server


@pytest.fixture(scope="module")  # not longer: its event loop would be in the way of other tests' asyncio.run
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")
    found = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: install the distribution's package `chromium`")
    flags = [
        "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run",
    ]  # fmt: skip
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=flags)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page that remembers what went wrong on it."""

    page: Any
    server: Server
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def open(self, path: str, *, wait_for: str | None = None) -> None:
        self.page.goto(f"{self.server.url}/{path.lstrip('/')}", wait_until="domcontentloaded")
        self.page.locator("h1").first.wait_for(timeout=20_000)
        if wait_for:
            self.page.get_by_text(wait_for).first.wait_for(timeout=20_000)
        self.idle()

    def idle(self) -> None:
        self.page.wait_for_function(
            """() => {
                const app = document.querySelector('[data-testid=stApp]');
                return app && app.dataset.testScriptState === 'notRunning'
                    && app.dataset.testConnectionState === 'CONNECTED'
                    && !document.querySelector('[data-testid=stSkeleton]')
                    && !document.querySelector('[data-stale=true]')
                    && [...document.images].every(i => i.complete && i.naturalWidth > 0);
            }""",
            timeout=20_000,
        )

    def marks(self) -> Any:
        return self.page.locator("[data-testid=stVegaLiteChart] svg path[aria-roledescription=point]")

    def drawn(self) -> None:
        """Every chart that the page has room for shows its marks."""
        self.page.locator("[data-testid=stVegaLiteChart] svg path[aria-roledescription]").first.wait_for(timeout=20_000)
        self.idle()

    def metric(self, label: str) -> str:
        box = self.page.locator("[data-testid=stMetric]").filter(has_text=label).first
        return str(box.locator("[data-testid=stMetricValue]").inner_text())

    def wait_until(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(condition, arg=argument, timeout=20_000)
        self.idle()

    def check(self) -> None:
        """Nothing raised, nothing left this machine."""
        assert self.page.locator("[data-testid=stException]").count() == 0
        assert self.errors == []
        assert self.foreign == []
        assert "Traceback" not in self.server.log


def new_tab(browser: Any, server: Server, *, width: int = 1400, height: int = 1000, dark: bool = False) -> Tab:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce",
        accept_downloads=True,
    )  # fmt: skip
    page = context.new_page()
    tab = Tab(page, server)
    # A deep link makes Streamlit look for its health address below the page's own, twice, before it finds the server.
    usual = re.compile(r"/\w+/_stcore/(health|host-config)")

    def console(message: Any) -> None:
        place = message.location.get("url", "") if message.location else ""
        if message.type == "error" and not usual.search(place):
            tab.errors.append(f"{message.text} ({place})")

    def request(asked: Any) -> None:
        if not asked.url.startswith((server.url, "data:", "blob:")):
            tab.foreign.append(asked.url)

    page.on("console", console)
    page.on("pageerror", lambda error: tab.errors.append(str(error)))
    page.on("request", request)
    return tab


def write_model(path: Path, names: tuple[str, ...] | None = None, **changes: Any) -> Path:
    """A deployed file for the classes of `write_run`: mean colour, one Gemm, temperature 2, full prior adjustment."""
    pytest.importorskip("onnx")
    spec = importlib.util.spec_from_file_location("tiny", ROOT / "tests" / "serve" / "tiny.py")
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    about = source(names)
    prior = Prior(train=about.train_prior, applied=1.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    written: Path = tiny.write(path, tiny.card(classes=about.class_names, prior=prior, **changes))
    return written


def write_feedback(
    folder: Path,
    model: Path,
    *,
    rows: int,
    every: int | None,
    seed: int = 7,
    sharpness: float = 2.0,
    start: float = 1e9,
    latency: bool = True,
) -> NDArray[np.int64]:
    """A log as the server writes it for the file: logits / 2 minus the prior term. Each `every`th row gets its label.

    Labels are drawn from the network's own distribution, moved to a uniform prior as the file moves it, so that the
    file is calibrated at `sharpness` 2.
    """
    card = OnnxFile.open(model).card()
    logits, _ = logits_and_labels(rows, seed=seed, sharpness=sharpness)
    shift = card.prior.shift()
    assert shift is not None
    rng = np.random.default_rng(seed)
    labels = (logits / sharpness - shift + rng.gumbel(size=logits.shape)).argmax(axis=1)
    identity = Model("birds", "1", hashlib.sha256(model.read_bytes()).hexdigest(), card.classes)
    writer = FeedbackWriter(folder)
    for first in range(0, rows, 20):
        last = min(first + 20, rows)
        ids = [f"r{i}" for i in range(first, last)]
        served = (logits[first:last] / 2 - shift).astype(np.float32)
        times = [start + 1.7 * i for i in range(first, last)]
        took = [4.0 + 0.001 * i + (30.0 if i % 40 == 0 else 0.0) for i in range(first, last)] if latency else None
        writer.predictions(identity, ids, times, served, latency_ms=took)
    if every is not None:
        chosen = range(0, rows, every)
        writer.labels("birds", [f"r{i}" for i in chosen], labels[list(chosen)].tolist())
    writer.close()
    return labels.astype(np.int64)


def export_small_network(path: Path) -> Path:
    """A file as `calibrant export` makes it, T = 2 and full adjustment inside, which can be edited afterwards."""
    torch = pytest.importorskip("torch")
    from calibrant.export import export_onnx

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(8, CLASSES),
    ).eval()  # fmt: skip
    about = source()
    path.parent.mkdir(parents=True, exist_ok=True)
    export_onnx(
        network, path, class_names=about.class_names, preprocessing=Preprocessing((16, 16), 16),
        train_prior=about.train_prior,
        calibrator=Calibrator("temperature", CLASSES, {"temperature": 2.0}), adjust=1.0,
    )  # fmt: skip
    return path


def write_features(path: Path) -> Path:
    """A feature cache as `calibrant features` leaves it: the toy set of the tests of heads."""
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("heads_toy", ROOT / "tests" / "train" / "heads" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    toy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    toy.write_cache(path)
    return path
