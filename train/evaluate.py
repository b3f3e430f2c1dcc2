"""A network over a set of images: logits, features, and the metrics of a validation set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.views import COUNT, ViewMaker, Views
from calibrant.train.data.loader import Batch, EvalDataset, make_loader, to_network
from calibrant.train.data.pixel_file import pixels_on_disk
from calibrant.train.data.pixels import ArrayStore, BadImage, FileStore, decode_all, store_of
from calibrant.train.model.feature_model import FeatureModel

Autocast = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Outputs:
    """What a network says about the rows of a set that could be read."""

    rows: NDArray[np.intp]  # (N,) into the set
    logits: NDArray[np.float32]  # (N, C), as the network gives them
    features: NDArray[np.float32] | None  # (N, D)


class EvalSource:
    """A set in the form of the evaluation transform: decoded once (`cache`) or at each pass."""

    def __init__(
        self,
        images: ImageSet,
        preprocessing: Preprocessing,
        *,
        cache: bool,
        workers: int,
        skip_bad: bool,
        what: str,
        views: Views = "one",
        cache_dir: Path | None = None,
    ) -> None:
        self.preprocessing, self.skip_bad, self.workers = preprocessing, skip_bad, workers
        self.views = COUNT[views]
        prepare = ViewMaker(preprocessing, views)
        self.bad: list[BadImage] = []
        self.images = images
        self.store: ArrayStore | FileStore
        if cache:
            told = f"decode {what}"
            if cache_dir is not None:
                recipe = {"views": views, "preprocessing": preprocessing.to_dict()}
                store, rows, self.bad = pixels_on_disk(
                    images, prepare, cache_dir, recipe=recipe, what=told, skip_bad=skip_bad
                )
            else:
                parts, rows, self.bad = decode_all(images, prepare, what=told, skip_bad=skip_bad)
                store = store_of(parts)
            if not len(rows):
                raise DataError("not one image could be read", where=what)
            self.images, self.workers = images.rows(rows), 0
            assert isinstance(store, ArrayStore)  # the transform gives one size
            self.store = store
        else:
            self.store = FileStore(images, prepare)

    def loader(self, batch_size: int, *, pin: bool) -> DataLoader[Batch]:
        dataset = EvalDataset(self.images, self.store)
        batches = BatchSampler(SequentialSampler(range(len(dataset))), batch_size, drop_last=False)
        return make_loader(dataset, batches, workers=self.workers, pin=pin)


def run_network(
    network: FeatureModel,
    source: EvalSource,
    *,
    batch_size: int,
    device: torch.device,
    features: bool = False,
    channels_last: bool = True,
    autocast: Autocast = nullcontext,
    on_batch: Callable[[int], None] = lambda n: None,
) -> Outputs:
    """Logits of all images, in order. Unreadable images are left out and added to `source.bad`, or raise."""
    rows: list[NDArray[np.intp]] = []
    logits: list[NDArray[np.float32]] = []
    feats: list[NDArray[np.float32]] = []
    for batch, z, f in network_batches(
        network, source, batch_size=batch_size, device=device, channels_last=channels_last, autocast=autocast
    ):
        rows.append(batch)
        logits.append(z)
        if features:
            feats.append(f)
        on_batch(len(batch))
    return Outputs(np.concatenate(rows), np.concatenate(logits), np.concatenate(feats) if features else None)


def network_batches(
    network: FeatureModel,
    source: EvalSource,
    *,
    batch_size: int,
    device: torch.device,
    channels_last: bool = True,
    autocast: Autocast = nullcontext,
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.float32]]]:
    """(rows, logits, features) of each batch, as NumPy arrays, without the images that could not be read."""
    network.eval()
    for batch in source.loader(batch_size, pin=device.type == "cuda"):
        if batch.bad and not source.skip_bad:
            raise DataError(batch.bad[0].why, where=batch.bad[0].id, fix="mend it, or pass --on-bad-image skip")
        source.bad += batch.bad
        with torch.inference_mode(), autocast():
            pixels = batch.pixels.unflatten(1, (source.views, -1)).flatten(0, 1)  # (n * views, H, W, 3)
            x = to_network(pixels, source.preprocessing, device, channels_last=channels_last)
            z, f = (t.float().unflatten(0, (-1, source.views)).mean(1) for t in network(x))
        unread = {b.id for b in batch.bad}
        index = batch.indices.numpy()
        keep = np.asarray([source.images.ids[i] not in unread for i in index], bool)
        yield index[keep].astype(np.intp), _array(z)[keep], _array(f)[keep]


def _array(t: Tensor) -> NDArray[np.float32]:
    return t.float().cpu().numpy()


def validation_metrics(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    """What a line of metrics.jsonl says about the validation set, as shares."""
    from calibrant.calibration.metrics.table import METRICS

    return {m.key: m.function(probs, labels) for m in METRICS if m.stored and not m.every_class}
