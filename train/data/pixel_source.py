"""The pixels of a run: decoded once and kept where the set is small enough, else read by worker processes."""

from __future__ import annotations

import os

import numpy as np

from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.crops import Augmentation
from calibrant.train.config import TrainConfig
from calibrant.train.data.pixel_file import pixels_on_disk
from calibrant.train.data.pixels import (
    MARGIN,
    BadImage,
    FileStore,
    PixelStore,
    decode_all,
    estimated_bytes,
    shrunk,
    store_of,
    whole,
)
from calibrant.train.data.split import Splits
from calibrant.train.distributed import Ranks, barrier
from calibrant.train.evaluate import EvalSource


def prepare_images(
    config: TrainConfig, splits: Splits, preprocessing: Preprocessing, ranks: Ranks
) -> tuple[ImageSet, PixelStore, EvalSource, list[BadImage]]:
    """Training and validation pixels, decoded once where the set is small enough."""
    augmentation = Augmentation(config.augment, preprocessing)
    ragged = not augmentation.wants_evaluation_pixels
    needed = estimated_bytes(splits.train, preprocessing, ragged=ragged)
    needed += estimated_bytes(splits.val, preprocessing, ragged=False)
    data = config.data
    cache = data.cache == "on" or (data.cache == "auto" and needed <= data.cache_limit_mb << 20)
    skip = data.on_bad_image == "skip"
    workers = worker_count(config, cache=cache)
    # The evaluation transform of each rank's contiguous part of the validation set.
    share = np.array_split(np.arange(len(splits.val)), ranks.world)[ranks.rank]
    val = EvalSource(
        splits.val.rows(share),
        preprocessing,
        cache=cache,
        workers=workers,
        skip_bad=skip,
        what="validation images",
        cache_dir=data.cache_dir,
    )
    store: PixelStore
    train = splits.train
    bad = list(val.bad)
    if cache:
        prepare = shrunk(preprocessing) if ragged else preprocessing.pixels
        told = "decode training images"
        if data.cache_dir is not None:
            recipe = {"shrunk": MARGIN if ragged else None, "preprocessing": preprocessing.to_dict()}
            if not ranks.first:
                barrier()  # the first process writes what the others read
            store, rows, unread = pixels_on_disk(
                train, prepare, data.cache_dir, recipe=recipe, what=told, skip_bad=skip
            )
            if ranks.first:
                barrier()
        else:
            parts, rows, unread = decode_all(train, prepare, what=told, skip_bad=skip)
            store = store_of(parts)
        bad += unread
        train = train.rows(rows)
    else:
        store = FileStore(train, whole if ragged else preprocessing.pixels)
    return train, store, val, bad


def worker_count(config: TrainConfig, *, cache: bool) -> int:
    if config.data.workers is not None:
        return config.data.workers
    return 0 if cache else min(8, os.cpu_count() or 1)
