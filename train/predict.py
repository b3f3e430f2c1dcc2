"""A trained run over images, into a predictions file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from calibrant.artifacts.predictions import PredictionsWriter
from calibrant.atomic import write_text
from calibrant.images.layouts import images_to_predict
from calibrant.progress import bar
from calibrant.train.augment.views import Views
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
    """Predictions of a run for images in any layout that training reads, labels or none; gives the file.

    Images that cannot be read stop the run by name, or are left out and listed in `<out>.bad-images.txt`. Labels that
    are no classes of the model stand in the column `label_name`. `views`: average the logits of several views.
    """
    model = load_run(run)
    where = pick_device(device, Ranks())
    images = images_to_predict(data, model.class_names, split=split)
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
                names = None if images.label_names is None else [images.label_names[i] for i in rows]
                writer.append(
                    ids, images.labels[rows], z, features=feats if features else None, split=split, label_names=names
                )
            shown.update(len(rows))
