"""Runs as the pipeline writes them, and a real Chromium in front of a real server."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration import Calibrator, fit
from calibrant.images.preprocessing import Preprocessing

from ..chromium import launched
from .browser import Server, Tab, new_tab, start_server

ROOT = Path(__file__).resolve().parents[2]
CLASSES = 10
# Names that would be pictures, formulas, bold text or tags if anything took them for markup.
HOSTILE = "a`![x](http://evil.example/p.png)<b>b</b>$x$**c**"
HOSTILE_FILE = HOSTILE.replace("/", "_")


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
    about = source(
        names,
        class_temperatures=taus,
        model={"name": "resnet18", "run": folder.name, "sha256": f"weights of {folder.name}"},
    )
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


TURN_START, TURN_ROWS, TURN, TURN_STEP = 1_767_225_600.0, 3000, 1500, 20.0  # 2026-01-01 00:00 UTC, seconds a row


def write_turning_feedback(folder: Path, *, picture: bytes | None = None) -> None:
    """Calibrated answers of four classes, all labelled; from row `TURN` on half of the labels are any class.

    `picture`: lies below the log under each row's id.
    """
    rng = np.random.default_rng(1)
    logits = (2 * rng.normal(size=(TURN_ROWS, 4))).astype(np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    wrong = (np.arange(TURN_ROWS) >= TURN) & (rng.random(TURN_ROWS) < 0.5)
    labels = np.where(wrong, rng.integers(0, 4, TURN_ROWS), labels)
    writer = FeedbackWriter(folder)
    identity = Model("birds", "1", "0" * 64, ("auk", "bittern", "crane", "dunlin"))
    for first in range(0, TURN_ROWS, 50):
        rows = range(first, first + 50)
        ids = [f"pictures/r{i}.png" for i in rows]
        writer.predictions(identity, ids, [TURN_START + TURN_STEP * i for i in rows], logits[first : first + 50])
        writer.labels("birds", ids, labels[first : first + 50].tolist())
        for name in ids if picture is not None else ():
            (folder / "pictures").mkdir(exist_ok=True)
            (folder / name).write_bytes(picture or b"")
    writer.close()


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


@pytest.fixture(autouse=True)
def own_main() -> Iterator[None]:
    """Streamlit's AppTest leaves its page in the place of `__main__`, and processes that are started later by spawning
    would run that page as their own."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture(scope="module")  # not longer: its event loop would be in the way of other tests' asyncio.run
def chromium() -> Iterator[Any]:
    pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, one with pictures and one whose every name is hostile, and files that cannot be used."""
    root = tmp_path_factory.mktemp("dash") / "runs"
    images = root / "leaves" / "images" / "test"
    ids = []
    for k in range(40):
        path = images / f"{k % CLASSES}" / f"{k:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (6 * k % 255, 120, 255 - 6 * k)).save(path)
        ids.append(path.relative_to(images).as_posix())
    write_run(root / "leaves", rows=2000, seed=1, ids=[ids[i % 40] for i in range(2000)])
    model = write_model(root / "leaves" / "model.onnx", source={"checkpoint_sha256": "weights of leaves"})
    write_feedback(root / "leaves" / "feedback", model, rows=1200, every=2, sharpness=3.0)
    write_run(root / "fedlas", rows=1500, seed=2, sharpness=1.4, loss="fedlas-ls")
    names = tuple(f"{HOSTILE} {k}" for k in range(CLASSES))
    hostile = write_run(root / HOSTILE_FILE, rows=500, seed=3, names=names, ids=[ids[i % 40] for i in range(500)])
    shutil.copytree(root / "leaves" / "images", hostile / "images")
    write_tokens(root / "leaves", tuple(f"leaf-{k:02d}" for k in range(CLASSES)))
    write_tokens(hostile, names, id_stem=HOSTILE_FILE)
    if importlib.util.find_spec("torch") is not None:
        write_features(root / "features")
    pq.write_table(pa.table({"x": [1]}), root / "foreign.parquet")
    pq.write_table(pa.table({"x": [1]}), root / f"{HOSTILE_FILE}.parquet")
    return root


@pytest.fixture(scope="module")
def server(runs: Path, chromium: Any) -> Iterator[Server]:
    started = start_server(runs)
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log


@pytest.fixture
def tab(chromium: Any, server: Server) -> Iterator[Tab]:
    opened = new_tab(chromium, server)
    yield opened
    opened.page.context.close()
