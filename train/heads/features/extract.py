"""From images to a feature cache: an image is decoded once for all its views; a complete shard is never made again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant._version import __version__
from calibrant.errors import ConfigError, DataError, FormatError, did_you_mean
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL
from calibrant.images.layouts import list_images
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import bar
from calibrant.train.data.split import divide, refuse_for_training
from calibrant.train.heads.device import chosen_device
from calibrant.train.heads.features.backbone import (
    BACKBONE_FILE,
    Backbone,
    load_backbone,
    save_backbone,
)
from calibrant.train.heads.features.cache import (
    MANIFEST,
    FeatureCache,
    Manifest,
    Pooling,
    Storage,
    write_manifest,
    write_shard,
)
from calibrant.train.heads.features.mixed_views import MixedViews, Mixture, is_mixed
from calibrant.train.heads.features.own_table import TEST_SHARE
from calibrant.train.heads.features.views import Pixels, check_view, make_view
from calibrant.train.model.evaluation_transform import evaluation_transform

log = logging.getLogger(__name__)

Amp = Literal["none", "bf16", "fp16"]


@dataclass(frozen=True)
class FeatureConfig:
    """What `calibrant features` is told."""

    model: str
    data: Path
    out: Path
    pretrained: bool = True
    weights: Path | None = None
    pooling: Pooling = "head"
    views: tuple[str, ...] = ("eval",)
    image_size: int | None = None
    crop_pct: float | None = None
    amp: Amp = "none"
    storage: Storage = "float32"
    batch_size: int = 32
    block: int = 512
    workers: int = 1  # threads that decode ahead
    seed: int = 0
    device: str = "auto"
    options: Mapping[str, Any] | None = None
    splits: tuple[str, ...] = ()  # extract these only; empty: all. The cache describes all of them either way
    keep_backbone: bool = True  # its weights beside the features, so that a head can be fused without them
    test_fraction: float = 0.0  # of images that are not divided
    layers: int = 1  # so many from the end are pooled


@dataclass(frozen=True)
class Extracted:
    """What a run of `extract` did."""

    cache: FeatureCache
    made: int  # shards
    kept: int  # shards that were there already
    images: int  # forward passes, one for each image and view


def read_splits(path: Path, *, test_fraction: float = 0.0) -> tuple[tuple[str, ...], dict[str, ImageSet]]:
    """Class names and the splits of the images as they lie there; what is not divided is one split, train.

    Validation rows are not held out here: that belongs to the head, so that one cache serves many divisions. With
    `test_fraction`, images that are not divided give that share to the test, by groups if they have any (seed 42).
    """
    listing = list_images(path)
    refuse_for_training(listing)
    if test_fraction and set(listing.sets) == {ALL}:
        test, train = divide(listing.sets[ALL], [test_fraction], class_names=listing.class_names)
        return listing.class_names, {"train": train, "test": test}
    return listing.class_names, {"train" if name == ALL else name: images for name, images in listing.sets.items()}


def usual_test_share(out: Path) -> float:
    """What undivided images give to the test where nothing is said: a fifth, as undivided tables do; nothing where the
    cache that is there was made without."""
    made = (out / MANIFEST).is_file() and "test" not in FeatureCache.open(out).manifest.splits
    return 0.0 if made else TEST_SHARE


def extract(config: FeatureConfig, given: tuple[tuple[str, ...], dict[str, ImageSet]] | None = None) -> Extracted:
    """Make what is missing of the cache `config.out`; refuse one that was made with anything else.

    `given`: class names and splits in the place of those of `config.data`, some of whose images may be left out.
    """
    for view in config.views:
        check_view(view)
    if len(set(config.views)) != len(config.views):
        raise ConfigError("a view is named twice", where="--view")
    class_names, splits = given or read_splits(config.data, test_fraction=config.test_fraction)
    for name in config.splits:
        if name not in splits:
            raise DataError(f'has no split "{name}"', where=config.data, fix=did_you_mean(name, splits))
    chosen = config.splits or tuple(splits)
    size = None if config.image_size is None else (config.image_size, config.image_size)
    backbone = load_backbone(
        config.model,
        pooling=config.pooling,
        pretrained=config.pretrained,
        weights=config.weights,
        input_size=size,
        options=config.options,
        layers=config.layers,
        seed=config.seed,
    )
    preprocessing = evaluation_transform(backbone.model, crop_pct=config.crop_pct)
    wanted = describe(config, backbone, preprocessing, class_names, splits)
    cache = _open_or_start(config.out, wanted)
    if config.keep_backbone and not (config.out / BACKBONE_FILE).is_file():
        save_backbone(config.out, backbone)
    todo = [
        (split, number, views)
        for split in splits
        if split in chosen
        for number in range(cache.shards(split))
        if (views := [v for v in config.views if not cache.shard(split, v, number).is_file()])
    ]
    total = sum(cache.shards(split) for split in set(chosen)) * len(config.views)
    device = chosen_device(config.device)
    backbone.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    made = images = 0
    mixers = {name: MixedViews(split, preprocessing, config.seed) for name, split in splits.items()}
    with bar(
        what="features", total=sum(_rows(splits[s], n, config.block) * len(v) for s, n, v in todo), unit="img"
    ) as b:
        for split, number, views in todo:
            first = number * config.block
            part = splits[split].rows(np.arange(len(splits[split]))[first : first + config.block])
            mixtures: dict[str, dict[int, Mixture]] = {view: {} for view in views if is_mixed(view)}
            features = forward_views(
                backbone,
                part,
                preprocessing,
                views,
                mixed=_mixing(mixers[split], first, mixtures) if mixtures else None,
                batch_size=config.batch_size,
                workers=config.workers,
                amp=config.amp,
                seed=config.seed,
                device=device,
                on_batch=b.update,
            )
            for view in views:
                of_two = None
                if view in mixtures:
                    of_two = _columns(mixtures[view], splits[split].ids)
                file = cache.shard(split, view, number)
                write_shard(file, part.ids, part.labels, features[view], config.storage, of_two)
                made += 1
            images += len(part) * len(views)
    return Extracted(cache, made, total - made, images)


def describe(
    config: FeatureConfig,
    backbone: Backbone,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    splits: Mapping[str, ImageSet],
) -> Manifest:
    model = {
        "name": config.model, "options": dict(config.options or {}), "sha256": backbone.sha256(),
        "weights": config.weights.name if config.weights else None,
    }  # fmt: skip
    import timm

    return Manifest(
        model,
        preprocessing.to_dict(),
        config.pooling,
        backbone.width,
        backbone.tokens,
        config.storage,
        config.amp,
        config.seed,
        config.block,
        tuple(class_names),
        {k: len(v) for k, v in splits.items()},
        {k: _digest(v) for k, v in splits.items()},
        tuple(config.views),
        {"calibrant": __version__, "torch": torch.__version__, "timm": timm.__version__},
        config.layers,
    )


def _open_or_start(path: Path, wanted: Manifest) -> FeatureCache:
    if (path / MANIFEST).is_file():
        found = FeatureCache.open(path)
        difference = found.manifest.difference(wanted)
        if difference is not None:
            raise FormatError(difference, where=path, fix="use another --out, or delete the folder")
        views = (*found.manifest.views, *(v for v in wanted.views if v not in found.manifest.views))
        merged = replace(found.manifest, views=views)
    elif path.exists() and any(path.iterdir()):
        raise FormatError(f"is not empty and has no {MANIFEST}", where=path, fix="use another --out")
    else:
        merged = wanted
    write_manifest(path, merged)
    return FeatureCache(path, merged)


def forward_views(
    backbone: Backbone,
    images: ImageSet,
    preprocessing: Preprocessing,
    views: Sequence[str],
    *,
    batch_size: int,
    mixed: Callable[[str, int], Pixels] | None = None,
    workers: int = 1,
    amp: Amp = "none",
    seed: int = 0,
    device: torch.device | None = None,
    on_batch: Any = lambda n: None,
) -> dict[str, NDArray[np.float32]]:
    """Features (N, D) or (N, T, D) of every image through every view; one decoding of an image serves all views.

    `mixed` makes those that need a second image, from the view and the image's place.
    """
    device = device or next(backbone.parameters()).device
    # One value for each number of a row of pixels: three values a pixel broadcast seven times slower.
    width = preprocessing.size[1]
    mean = (255 * torch.tensor(preprocessing.mean, device=device)).repeat(width)
    factor = (1 / (255 * torch.tensor(preprocessing.std, device=device))).repeat(width)
    parts: dict[str, list[NDArray[np.float32]]] = {view: [] for view in views}

    def decode(i: int) -> list[Pixels]:
        image = images.image(i)
        return [
            mixed(v, i) if mixed and is_mixed(v) else make_view(image, v, preprocessing, seed=seed, id=images.ids[i])
            for v in views
        ]

    for decoded in _ahead(decode, len(images), batch_size, workers):
        for k, view in enumerate(views):
            pixels = torch.from_numpy(np.stack([one[k] for one in decoded])).to(device, non_blocking=True)
            with torch.inference_mode(), _autocast(amp, device):
                # The bytes lie in NHWC, which is channels_last already: no transposition is ever made.
                x: Tensor = pixels.flatten(2).float().sub_(mean).mul_(factor).reshape(pixels.shape).permute(0, 3, 1, 2)
                f = backbone(x).float()
            parts[view].append(f.cpu().numpy())
            on_batch(len(decoded))
    return {view: np.concatenate(found) for view, found in parts.items()}


def _mixing(mixer: MixedViews, first: int, made: dict[str, dict[int, Mixture]]) -> Callable[[str, int], Pixels]:
    """What makes the views of two images of a block, and notes what they are of."""

    def make(view: str, i: int) -> Pixels:
        mixture = mixer.make(view, first + i)
        made[view][i] = replace(mixture, pixels=mixture.pixels[:0])
        return mixture.pixels

    return make


def _columns(made: Mapping[int, Mixture], ids: Sequence[str]) -> tuple[list[str], NDArray[np.float32]]:
    rows = [made[i] for i in range(len(made))]
    return [ids[m.partner] for m in rows], np.asarray([m.share for m in rows], np.float32)


def _ahead(decode: Any, count: int, batch_size: int, workers: int) -> Iterator[list[list[Pixels]]]:
    """Batches of decoded images, the next one being decoded while the caller works on this one."""
    starts = range(0, count, batch_size)
    if workers < 1:
        for first in starts:
            yield [decode(i) for i in range(first, min(first + batch_size, count))]
        return
    with ThreadPoolExecutor(workers) as pool:

        def submit(first: int) -> list[Future[list[Pixels]]]:
            return [pool.submit(decode, i) for i in range(first, min(first + batch_size, count))]

        waiting = submit(0) if count else []
        for first in starts:
            current, waiting = waiting, submit(first + batch_size) if first + batch_size < count else []
            try:
                yield [f.result() for f in current]
            except DataError:
                for f in waiting:
                    f.cancel()
                raise


def _autocast(amp: Amp, device: torch.device) -> AbstractContextManager[Any]:
    if amp == "none":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16 if amp == "bf16" else torch.float16)


def _rows(images: ImageSet, number: int, block: int) -> int:
    return min(block, len(images) - number * block)


def _digest(images: ImageSet) -> str:
    """Ids, labels and sizes of files: images that were replaced by others are noticed."""
    digest = hashlib.sha256()
    sizes: dict[Path | None, int] = {None: 0}
    for i, (id, label) in enumerate(zip(images.ids, images.labels, strict=True)):
        place = images.place(i)
        if place not in sizes:
            sizes[place] = place.stat().st_size if place is not None and place.exists() else 0
        digest.update(f"{id} {label} {sizes[place]}\n".encode())
    if images.pixels is not None:
        digest.update(np.ascontiguousarray(images.pixels).data)
    return digest.hexdigest()
