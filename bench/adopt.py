"""Foreign files of many exporters: adopted, calibrated, served; figures before and after.

    python bench/foreign/digits.py DIR/digits.npz
    python bench/adopt.py DIR/digits.npz FOLDER [--json PATH]

FOLDER holds the files that bench/foreign/make_*.py write; those that are missing are left out. The checked-in ones are
in tests/golden/adopt. Each is adopted with its true preprocessing and 200 held-out pictures, calibrated by temperature
on 600 pictures, put into the file, and evaluated on 797 others. All are then served by one `calibrant serve`, and what
the server answers is compared with the file in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from calibrant.artifacts.predictions import read_predictions
from calibrant.atomic import write_json
from calibrant.calibration import fit
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.metrics.binned_errors import ece
from calibrant.calibration.softmax import log_softmax, softmax
from calibrant.export import adopt
from calibrant.export.adoption.preprocess.declared import Flags
from calibrant.export.edit import recalibrate
from calibrant.progress import table
from calibrant.serve.batch.predict import predict_model
from calibrant.serve.engine.classifier import load

IMAGENET = Flags((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = Flags((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True)
class File:
    name: str
    exporter: str
    flags: Flags | None  # None: rows of numbers
    parts: int = 10  # classes


FILES = (
    File("torchscript-softmax", "torch.onnx, torchscript, opset 11, softmax inside", IMAGENET),
    File("dynamo-bgr", "torch.onnx, dynamo, opset 18, BGR", Flags(scale="0-1", colour="bgr")),
    File("float16", "onnxconverter-common, float16", IMAGENET),
    File("onnxruntime-qdq", "onnxruntime, static QDQ int8", IMAGENET),
    File("onnxslim", "onnxslim, of the dynamo file", Flags(scale="0-1", colour="bgr")),
    File("transformers-vit", "torch.onnx of a transformers ViT", HALF),
    File("onnxsim", "onnxsim, of the ViT", HALF),
    File("transformer-optimiser", "onnxruntime's transformer optimiser, of the ViT", HALF),
    File("optimum", "optimum, of the ViT", HALF),
    File("tf2onnx", "tf2onnx, Keras 3, NHWC, 0-255", Flags(scale="0-255")),
    File("keras-export", "Keras' own export, NHWC", Flags(scale="0-1")),
    File("skl2onnx-logistic", "skl2onnx, pipeline, ZipMap", None),
    File("skl2onnx-binary", "skl2onnx, two classes, margins with both signs", None, 2),
    File("skl2onnx-forest", "skl2onnx, random forest (no logits)", None),
    File("lightgbm", "onnxmltools, LightGBM, ZipMap", None),
    File("xgboost", "onnxmltools, XGBoost", None),
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("archive", type=Path)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--json", type=Path)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        rows = [one(f, given, work) for f in FILES if (given.folder / f"{f.name}.onnx").is_file()]
        served(work / "models", rows)
    heads = (
        "file",
        "exporter",
        "tail",
        "difference",
        "accuracy",
        "ECE before",
        "after",
        "NLL before",
        "after",
        "served",
    )
    print(table(heads, [cells(r) for r in rows], left=3))
    if given.json is not None:
        write_json(given.json, rows)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    before, after = row["before"], row["after"]
    return (
        row["file"], row["exporter"], row["tail"], f"{row['difference']:.0e}", f"{100 * after['accuracy']:.1f} %",
        f"{100 * before['ece']:.1f} %", f"{100 * after['ece']:.1f} %", f"{before['nll']:.3f}", f"{after['nll']:.3f}",
        f"{row['served']:.0e}",
    )  # fmt: skip


def one(file: File, given: argparse.Namespace, work: Path) -> dict[str, Any]:
    data = given.archive if file.flags is not None else numbers(given.archive, work, file.parts)
    names = [f"digit {k}" for k in range(10)] if file.parts == 10 else ["even", "odd"]
    out = work / "models" / f"{file.name}.onnx"
    size = (24, 24) if file.name == "optimum" else None  # its graph leaves the size open
    done = adopt(given.folder / f"{file.name}.onnx", out, classes=names, flags=file.flags, size=size, data=data)
    val, test = (predict_model(out, data, work / f"{file.name}-{s}.parquet", split=s) for s in ("val", "test"))
    rows = read_predictions(val)
    calibrator = fit("temperature", rows.logits, rows.labels)
    before = figures(test, None)
    recalibrate(out, calibrator)
    after = figures(test, calibrator)
    difference = done.proof.difference or 0.0
    return {
        "file": file.name, "exporter": file.exporter, "tail": "matrix" if done.body.weight is not None else "logits",
        "difference": difference, "before": before, "after": after,
        "temperature": calibrator.parameters["temperature"], "served": float("nan"), "data": (data, file.flags is None),
    }  # fmt: skip


def figures(predictions: Path, calibrator: Calibrator | None) -> dict[str, float]:
    rows = read_predictions(predictions)
    logits = rows.logits if calibrator is None else calibrator.logits(rows.logits)
    p = softmax(logits)
    return {
        "accuracy": float((p.argmax(1) == rows.labels).mean()), "ece": ece(p, rows.labels),
        "nll": float(-log_softmax(logits)[np.arange(len(p)), rows.labels].mean()),
    }  # fmt: skip


def numbers(archive: Path, work: Path, classes: int) -> Path:
    """The digits as rows of numbers; of two classes, even and odd."""
    out = work / f"numbers-{classes}.npz"
    if not out.is_file():
        arrays = np.load(archive)
        found = {k.replace("f_", "x_"): arrays[k] for k in arrays.files if k.startswith("f_")}
        found |= {k: arrays[k] % classes for k in arrays.files if k.startswith("y_")}
        np.savez(out, **found)
    return out


def served(models: Path, rows: list[dict[str, Any]]) -> None:
    """Fills in the largest difference between the server's probabilities and the file's in this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = [f"{row['file']}={models / row['file']}.onnx" for row in rows]
    command = [sys.executable, "-m", "calibrant", "serve", *files, "--port", str(port), "--batch-cap", "1"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for row in rows:
            data, numbers_only = row.pop("data")
            some = np.load(data)["x_test"][:20]
            own = load(models / f"{row['file']}.onnx").predict(some)
            kind, name = ("FP32", "rows") if numbers_only else ("UINT8", "images")
            tensor = {"name": name, "datatype": kind, "shape": list(some.shape), "data": some.reshape(-1).tolist()}
            answer = ask(port, row["file"], {"inputs": [tensor], "outputs": [{"name": "probabilities"}]})
            got = np.asarray(answer["outputs"][0]["data"]).reshape(len(some), -1)
            row["served"] = float(np.abs(got - own.probabilities).max())
    finally:
        server.terminate()
        server.wait(30)


def ask(port: int, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Waits for the server to listen."""
    url = f"http://127.0.0.1:{port}/v2/models/{name}/infer"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    until = time.monotonic() + 300
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return dict(json.load(reply))
        except (ConnectionError, urllib.error.URLError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                raise RuntimeError(error.read().decode()) from None
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
