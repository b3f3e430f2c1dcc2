"""Features of the frozen backbone, several heads on them, and the one that is kept with what it said out of fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.atomic import replacing
from calibrant.commands.fit.data import Rows
from calibrant.commands.fit.plan import Clock, Wanted, size_within
from calibrant.commands.fit.project import Project

if TYPE_CHECKING:
    from calibrant.train.heads.features.cache import FeatureCache, FeatureRows
    from calibrant.train.model.choice import ChosenBackbone

FEATURES = "features"
CHOSEN = f"{FEATURES}/chosen-nll.npy"  # row and NLL of what the kept head judged
_DECODING = 0.004  # seconds of a photograph of some megapixels


@dataclass(frozen=True)
class Pace:
    """Image size, and seconds an image through the frozen network."""

    size: int
    seconds: float


def pace(wanted: Wanted, choice: ChosenBackbone, images: int, clock: Clock, project: Project) -> Pace:
    """Measured once; the size that a budget allows is kept for later sittings."""
    from calibrant.train.heads.device import chosen_device
    from calibrant.train.heads.features.backbone import load_backbone
    from calibrant.train.heads.features.speed import seconds_an_image

    known = project.done("pace")
    if known is not None:
        return Pace(int(known["size"]), float(known["seconds"]))
    size = wanted.image_size
    backbone = load_backbone(
        choice.model,
        pretrained=choice.pretrained,
        weights=choice.weights,
        input_size=None if size is None else (size, size),
    )
    native = int(backbone.model.input_size[0])
    seconds = seconds_an_image(backbone, chosen_device(wanted.device)) + _DECODING
    chosen = (
        native if size is not None or wanted.minutes is None else size_within(native, images, seconds, clock.left())
    )
    seconds *= (chosen / native) ** 2
    project.finish("pace", {"size": chosen, "native": native, "seconds": seconds})
    return Pace(chosen, seconds)


def extract(
    wanted: Wanted, project: Project, choice: ChosenBackbone, rows: Rows, size: int, *, workers: int
) -> FeatureCache:
    """Goes on where it stopped: the cache is complete shard by shard."""
    from calibrant.train.heads.features.extract import FeatureConfig
    from calibrant.train.heads.features.extract import extract as make

    sets = {"train": rows.learn} | ({} if rows.test is None else {"test": rows.test})
    config = FeatureConfig(
        choice.model,
        wanted.images,
        project.path / FEATURES,
        choice.pretrained,
        choice.weights,
        image_size=size,
        workers=workers,
        seed=0,
        device=wanted.device,
        block=256,
    )
    return make(config, (rows.class_names, sets)).cache


def choose(project: Project, cache: FeatureCache, rows: Rows, wanted: Wanted) -> dict[str, Any]:
    """Writes the run of the best head into the folder; gives the table of all."""
    from calibrant.progress import bar
    from calibrant.train.heads.candidates import best, candidates, judge
    from calibrant.train.heads.experiment import head_result
    from calibrant.train.heads.run import write_run

    known = project.done("heads")
    if known is not None:
        return known
    features = cache.read("train", "eval")
    counts = np.bincount(features.labels, minlength=len(cache.class_names))
    found = []
    tried = candidates(counts, seed=wanted.seed)
    with bar(what="trying heads", total=len(tried) * rows.parts, unit="fits") as shown:
        for name, config in tried.items():
            found.append(
                judge(
                    name,
                    config,
                    features.features,
                    features.labels,
                    rows.folds,
                    rows.judged,
                    len(cache.class_names),
                    on_fold=lambda: shown.update(1),
                )
            )
    kept = best(found)
    result = head_result(kept.config, features, kept.out, rows.folds, cache.class_names)
    write_run(project.path, cache, result, data=wanted.images)
    table = [{"name": j.name, "nll": float(j.nll.mean()), "accuracy": j.accuracy} for j in found]
    with replacing(project.path / CHOSEN) as temporary:
        np.save(temporary, np.stack([kept.out.rows.astype(np.float64), kept.nll]))
    return project.finish("heads", {"candidates": table, "chosen": kept.name, "rows": len(kept.nll)})


def test_logits(project: Project, cache: FeatureCache) -> tuple[FeatureRows, Any]:
    """What the kept head says of the test rows, from their features."""
    import torch

    from calibrant.train.run.folder import load_run

    run = load_run(project.path)
    rows = cache.read("test", "eval")
    with torch.inference_mode():
        logits = run.network.network.head(torch.from_numpy(rows.features))[0]  # type: ignore[operator]
    return rows, run.adjust(logits).numpy()
