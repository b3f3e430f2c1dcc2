"""Density-aware temperature beside a plain one: in domain, and on pictures that have changed.

    python bench/density.py --data DIR --weights LITE0.safetensors --work DIR2 [--sets cub,plantdoc,cifar] [--json OUT]

DIR holds cub100.tar.gz, plantdoc.tar.gz and cifar10_jpeg.npz. Features of a frozen Lite0 (kept in DIR2, made once), a
logistic head on the training rows under a weak penalty, as surer networks have; calibrators are fitted on half of the
test rows, n of them, and judged on the other half as it is and blurred, compressed and dark. NLL minus the
temperature's, mean over draws of the halves with its standard error; and, for scale, that of a temperature fitted on
the judged rows themselves.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import tarfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.softmax import log_softmax

Rows = tuple[np.ndarray, np.ndarray]
SIZES = {"cub": 128, "plantdoc": 128, "cifar": 64}
MOST = {"cub": (3000, 2864), "plantdoc": (1080, 235), "cifar": (4000, 3000)}  # training and test rows
BATCH = 16


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(max(image.size) / 60))


def compressed(image: Image.Image) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=8)
    return Image.open(stream).convert("RGB")


def dark(image: Image.Image) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(0.3)


VIEWS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "clean": lambda image: image, "blurred": blurred, "compressed": compressed, "dark": dark,
}  # fmt: skip


def pictures(data: Path, name: str, split: str) -> Iterator[tuple[bytes, int]]:
    """Encoded pictures with labels, in an order drawn once."""
    if name == "cifar":
        file = np.load(data / "cifar10_jpeg.npz")
        header, bytes_, offsets = file["jpeg_header"].tobytes(), file[f"{split}_bytes"], file[f"{split}_offsets"]
        labels = file[f"y_{split}"]
        found = [(i, int(labels[i])) for i in range(len(labels))]
        read = lambda i: header + bytes_[offsets[i] : offsets[i + 1]].tobytes()  # noqa: E731
    else:
        with tarfile.open(data / {"cub": "cub100.tar.gz", "plantdoc": "plantdoc.tar.gz"}[name]) as archive:
            every = [m for m in archive.getmembers() if m.isfile()]
            members = [m for m in every if f"/{split}/" in m.name]
            contents = {m.name: archive.extractfile(m).read() for m in members}  # type: ignore[union-attr]
        classes = sorted({m.name.split("/")[-2] for m in every})
        found = [(m.name, classes.index(m.name.split("/")[-2])) for m in members]
        read = contents.__getitem__
    order = np.random.default_rng(0).permutation(len(found))[: MOST[name][split == "test"]]
    for i in order:
        key, label = found[i]
        yield read(key), label


def features(data: Path, weights: Path, work: Path, name: str, split: str, view: str) -> Rows:
    stored = work / f"{name}-{split}-{view}.npz"
    if stored.exists():
        with np.load(stored) as file:
            return file["features"], file["labels"]
    import torch
    from safetensors.torch import load_file

    torch.set_num_threads(1)
    import timm

    network = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=1000)
    network.load_state_dict(load_file(weights))
    network.reset_classifier(0)
    network.eval()
    size, rows, labels, batch = SIZES[name], [], [], []

    def flush() -> None:
        if batch:
            x = torch.from_numpy(np.stack(batch)).permute(0, 3, 1, 2).float() / 127.5 - 1
            with torch.inference_mode():
                rows.append(network(x).numpy())
            batch.clear()

    for encoded, label in pictures(data, name, split):
        image = VIEWS[view](Image.open(io.BytesIO(encoded)).convert("RGB"))
        short = min(image.size)
        left, top = (image.size[0] - short) // 2, (image.size[1] - short) // 2
        box = (left, top, left + short, top + short)
        batch.append(np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box)))
        labels.append(label)
        if len(batch) == BATCH:
            flush()
    flush()
    found = np.concatenate(rows).astype(np.float32), np.asarray(labels, np.int64)
    np.savez(stored, features=found[0], labels=found[1])
    print(stored.name, found[0].shape, flush=True)
    return found


def head(train: Rows) -> tuple[np.ndarray, np.ndarray]:
    """A logistic head under a weak penalty: right on nearly all of its own rows, so too sure of others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train[0])
    model = LogisticRegression(C=0.01, max_iter=60).fit(scaler.transform(train[0]), train[1])
    weight = model.coef_ / scaler.scale_
    return weight, model.intercept_ - weight @ scaler.mean_


def losses(calibrator: Calibrator, z: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    zeta = calibrator.logits(z, x if calibrator.reads_features else None)
    return float(-log_softmax(zeta)[np.arange(len(y)), y].mean())


def compared(views: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], rows: int, draws: int) -> dict[str, Any]:
    """Of each view the mean NLL after a temperature, and what `density-aware` and a temperature that knows its labels
    change."""
    found: dict[str, dict[str, list[float]]] = {v: defaultdict(list) for v in views}
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(len(views["clean"][2]))
        test = order[len(order) // 2 :]
        own = order[: len(order) // 2][:rows]
        z, x, y = (a[own] for a in views["clean"])
        plain, aware = fit("temperature", z, y), fit("density-aware", z, y, features=x)
        for view, whole in views.items():
            fresh = tuple(a[test] for a in whole)
            at = losses(plain, *fresh)
            found[view]["temperature"].append(at)
            found[view]["density-aware"].append(losses(aware, *fresh) - at)
            found[view]["best temperature"].append(losses(fit("temperature", fresh[0], fresh[2]), *fresh) - at)
            found[view]["accuracy"].append(float((fresh[0].argmax(axis=1) == fresh[2]).mean()))
    return {
        view: {
            **{name: float(np.mean(values)) for name, values in by_name.items()},
            "standard error": float(np.std(by_name["density-aware"], ddof=1) / np.sqrt(draws)),
        }
        for view, by_name in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(SIZES))
    parser.add_argument("--rows", default="50,200,1000")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    options.work.mkdir(parents=True, exist_ok=True)
    block: dict[str, Any] = {}
    for name in options.sets.split(","):
        made = (options.data, options.weights, options.work, name)
        weight, bias = head(features(*made, "train", "clean"))
        views = {}
        for view in VIEWS:
            x, y = features(*made, "test", view)
            views[view] = ((x @ weight.T + bias).astype(np.float32), x, y)
        for rows in (int(n) for n in options.rows.split(",")):
            if rows > len(views["clean"][2]) // 2:
                continue
            block[f"{name} {rows}"] = found = compared(views, rows, options.draws)
            for view, f in found.items():
                numbers = f"{f['temperature']:.4f} | {f['density-aware']:+.4f} +- {f['standard error']:.4f}"
                print(f"| {name} | {rows} | {view} | {f['accuracy']:.2f} | {numbers} | {f['best temperature']:+.4f} |")
    if options.json:
        options.json.write_text(json.dumps(block, indent=1) + "\n")


if __name__ == "__main__":
    main()
