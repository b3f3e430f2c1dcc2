"""What a run leaves behind: an empty folder to begin with, predictions at the end, and the images left out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from calibrant.atomic import write_text
from calibrant.errors import ConfigError
from calibrant.train.config import TrainConfig
from calibrant.train.data.pixel_source import worker_count
from calibrant.train.data.pixels import BadImage, FileStore
from calibrant.train.data.split import Splits
from calibrant.train.evaluate import EvalSource
from calibrant.train.loop.parts import Parts
from calibrant.train.predict import write_predictions
from calibrant.train.run.epoch_files import FOLDER as EPOCHS_FOLDER
from calibrant.train.run.folder import CHECKPOINT_FILE, CONFIG_FILE, MODEL_FILE, load_run
from calibrant.train.vit.gallery import write_gallery

log = logging.getLogger(__name__)

BAD_IMAGES_FILE = "bad-images.txt"


def refuse_a_run(run: Path) -> None:
    if run.exists() and not run.is_dir():
        raise ConfigError("is a file; give a folder", where=run)
    if (run / CONFIG_FILE).exists():
        raise ConfigError("holds a run already", where=run, fix="pass --resume to go on, --overwrite, or another --out")


def claim(run: Path, *, overwrite: bool) -> None:
    """The run folder, empty of an earlier run."""
    if not overwrite or not run.is_dir():
        refuse_a_run(run)
    if (run / CONFIG_FILE).exists():
        for name in (MODEL_FILE, CHECKPOINT_FILE, CONFIG_FILE, "metrics.jsonl", BAD_IMAGES_FILE):
            (run / name).unlink(missing_ok=True)
        epochs = (run / EPOCHS_FOLDER).glob("epoch-*.safetensors")
        for file in [*(run / "predictions").glob("*.parquet"), *(run / "tb").glob("events.*"), *epochs]:
            file.unlink()
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made ({error.strerror})", where=run) from None


def write_results(
    config: TrainConfig, run: Path, splits: Splits, parts: Parts, known_bad: Sequence[BadImage], device: torch.device
) -> None:
    """Predictions of the best epoch, and the list of images that could not be read."""
    left_out = list(known_bad)
    engine, skip = config.engine, config.data.on_bad_image == "skip"
    model = load_run(run)
    model.network.to(device)
    cached = not isinstance(parts.loader.dataset.store, FileStore)  # type: ignore[attr-defined]
    workers = worker_count(config, cache=cached)
    sources = (
        {"val": parts.val}
        if parts.ranks.world == 1
        else {
            "val": EvalSource(
                splits.val,
                model.preprocessing,
                cache=False,
                workers=workers,
                skip_bad=skip,
                what="validation images",
            )
        }
    )
    if splits.test is not None and len(splits.test):
        kept = config.data.cache_dir  # runs that share their pixels share those of the test set too
        sources["test"] = EvalSource(
            splits.test,
            model.preprocessing,
            cache=kept is not None,
            workers=workers,
            skip_bad=skip,
            what="test images",
            cache_dir=kept,
        )
    for split, source in sources.items():
        write_predictions(
            model,
            source,
            run / "predictions" / f"{split}.parquet",
            split=split,
            device=device,
            batch_size=max(64, engine.batch_size),
            features=engine.features,
        )
        left_out += source.bad
    last = next(reversed(sources))
    write_gallery(model, sources[last], run, split=last, device=device)
    bad = {b.id: b.why for b in left_out}
    if bad:
        write_text(run / BAD_IMAGES_FILE, "".join(f"{name}\t{why}\n" for name, why in sorted(bad.items())))
        what = "image" if len(bad) == 1 else "images"
        log.warning("%d %s could not be read, left out; see %s", len(bad), what, run / BAD_IMAGES_FILE)


def bad_images(run: Path) -> list[str]:
    """Images that a run left out."""
    file = run / BAD_IMAGES_FILE
    return [line.partition("\t")[0] for line in file.read_text().splitlines()] if file.is_file() else []
