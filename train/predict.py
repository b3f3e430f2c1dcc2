"""A trained run over images, into a predictions file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from calibrant.artifacts.predictions import PredictionsWriter
from calibrant.atomic import write_text
from calibrant.errors import DataError, did_you_mean
from calibrant.progress import bar
from calibrant.train.augment.views import Views
from calibrant.train.data.folder import from_files, image_files, read_known_classes, require_folder, split_folder
from calibrant.train.data.image_set import ImageSet
from calibrant.train.distributed import Ranks, pick_device
from calibrant.train.evaluate import EvalSource, network_batches
from calibrant.train.run.folder import TrainedModel, load_run


def predict_run(
    run: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    split: str = "test",
    batch_size: int = 64,
    features: bool = False,
    on_bad_image: Literal["fail", "skip"] = "fail",
    views: Views = "one",
    workers: int = 0,
    device: str = "auto",
) -> Path:
    """Predictions of a run for a folder of images, labelled where the folder names classes; gives the file.

    The folder: DIR/SPLIT/CLASS/*.jpg, DIR/CLASS/*.jpg, or images without labels. Images that cannot be read stop the
    run by name, or are left out and listed in `<out>.bad-images.txt`. `views`: average the logits of several views.
    """
    model = load_run(run)
    where = pick_device(device, Ranks())
    images = images_for(Path(data), model.class_names, split=split)
    source = EvalSource(
        images,
        model.preprocessing,
        cache=False,
        workers=workers,
        skip_bad=on_bad_image == "skip",
        what=str(data),
        views=views,
    )
    model.network.to(where)
    out = Path(out)
    write_predictions(model, source, out, split=split, device=where, batch_size=batch_size, features=features)
    if source.bad:
        listing = out.with_name(out.name + ".bad-images.txt")
        write_text(listing, "".join(f"{b.id}\t{b.why}\n" for b in source.bad))
    return out


def images_for(path: Path, class_names: Sequence[str], *, split: str) -> ImageSet:
    """Images of a folder, with labels if its sub-folders are classes of the model."""
    require_folder(path)
    if split in ("train", "val", "test"):
        path = split_folder(path, split) or path
    elif (path / split).is_dir():
        path = path / split
    folders = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    if not folders:
        files = image_files(path)
        if not files:
            shards = any(p.suffix in (".tar", ".parquet") for p in path.iterdir())
            fix = "a run folder predicts on image folders; deployed files (calibrant export) read shards too"
            raise DataError("holds no images", where=path, fix=fix if shards else None)
        return from_files(files, [-1] * len(files), path)
    strange = [name for name in folders if name not in class_names]
    if strange:
        raise DataError(
            f'"{strange[0]}" is not a class of the model', where=path, fix=did_you_mean(strange[0], class_names)
        )
    return read_known_classes(path, class_names)


def write_predictions(
    model: TrainedModel,
    source: EvalSource,
    out: Path,
    *,
    split: str,
    device: torch.device,
    batch_size: int,
    features: bool = False,
) -> None:
    """Logits with gauge and class temperatures applied, in float32 whatever the training used."""
    images = source.images
    with (
        PredictionsWriter(out, model.source()) as writer,
        bar(what=f"predict {split}", total=len(images), unit="img") as shown,
    ):
        for rows, logits, feats in network_batches(model.network, source, batch_size=batch_size, device=device):
            z = model.adjust(torch.from_numpy(np.ascontiguousarray(logits))).numpy()
            ids = [images.ids[i] for i in rows]
            if len(ids):
                writer.append(ids, images.labels[rows], z, features=feats if features else None, split=split)
            shown.update(len(rows))
