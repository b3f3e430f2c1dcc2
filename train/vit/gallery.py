"""Token pictures of a trained run: which patches of a few images each stage keeps, for the dashboard to show.

A run whose network reduces its tokens gets a folder tokens/: a PNG for each image (the image, then a panel a stage) and
tokens.json, which says what they show and how many tokens were left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.atomic import replacing, write_json
from calibrant.calibration.softmax import softmax
from calibrant.train.data.loader import EvalDataset, to_network
from calibrant.train.evaluate import EvalSource
from calibrant.train.run.folder import TrainedModel
from calibrant.train.vit.hook import ReducedViT
from calibrant.train.vit.picture import draw, kept, merges

FOLDER, INDEX_FILE, FORMAT_VERSION = "tokens", "tokens.json", 1
IMAGES = 12
_SIDE = 160  # smaller images are enlarged by whole steps to about this


def write_gallery(model: TrainedModel, source: EvalSource, run: Path, *, split: str, device: torch.device) -> bool:
    """Pictures of up to twelve images, of as many classes as possible; False where no tokens are reduced."""
    folder, vit = run / FOLDER, model.network.network
    for old in [*folder.glob("*.png"), folder / INDEX_FILE]:
        old.unlink(missing_ok=True)  # of a run that was here before
    if not isinstance(vit, ReducedViT) or vit.settings.method == "none":
        return False
    batch = EvalDataset(source.images, source.store).__getitems__(_choose(source.images.labels).tolist())
    unread = {b.id for b in batch.bad}
    x = to_network(batch.pixels, source.preprocessing, device, channels_last=False)
    with torch.no_grad():
        probs = softmax(model.adjust(model.network.eval()(x)[0]).cpu().numpy())
    stages, merged = kept(vit, x), merges(vit)
    folder.mkdir(exist_ok=True)
    pictures: list[dict[str, Any]] = []
    for pixels, label, row, p, stage in zip(
        batch.pixels.numpy(), batch.labels.tolist(), batch.indices.tolist(), probs, stages, strict=True
    ):
        name = source.images.ids[row]
        if name in unread:
            continue
        file = f"{len(pictures):03d}.png"
        _save(folder / file, draw(_enlarged(pixels), stage, merged=merged))
        pictures.append({
            "file": file, "id": name, "label": label, "predicted": int(p.argmax()), "confidence": float(p.max()),
            "tokens": [s.tokens for s in stage], "patches": [int(s.survives.sum()) for s in stage],
        })  # fmt: skip
    first = stages[0]
    write_json(folder / INDEX_FILE, {
        "kind": "tokens", "format_version": FORMAT_VERSION, "method": vit.settings.method, "merged": merged,
        "cla": bool(vit.settings.cla), "split": split, "class_names": list(model.class_names),
        "model_sha256": model.sha256, "blocks": [s.block for s in first], "grid": list(first[0].token.shape),
        "pictures": pictures,
    })  # fmt: skip
    return True


def _choose(labels: NDArray[np.int64]) -> NDArray[np.intp]:
    """Rows of different classes while there are some, always the same ones, in order."""
    order = np.random.default_rng(0).permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    rest = np.setdiff1d(np.arange(len(order)), first)
    chosen = np.concatenate([np.sort(first), rest])[:IMAGES]
    return np.sort(order[chosen])


def _enlarged(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    times = max(1, round(_SIDE / pixels.shape[0]))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)


def _save(path: Path, picture: NDArray[np.uint8]) -> None:
    from PIL import Image

    with replacing(path) as temporary:
        Image.fromarray(picture).save(temporary, format="PNG", optimize=True)
