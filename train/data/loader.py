"""Batches for training and evaluation.

The order of an epoch and the look of each image are functions of (seed, epoch, position), see random.py: a loader can
start at any batch of any epoch, with any number of workers, and nothing about it needs saving.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.crops import Augmentation
from calibrant.train.augment.donors import Donors
from calibrant.train.data.pixels import BadImage, PixelStore
from calibrant.train.seeds import derive, generator

IGNORE = -100  # label of rows that pad a batch or could not be read; every loss leaves them out

Place = tuple[int, int, int]  # index into the set, epoch, position in the epoch; position -1 pads the batch


@dataclass
class Donated:
    """Images of rare classes, and the rows of the batch that get a patch of them."""

    pixels: Tensor  # uint8 (m, H, W, 3)
    labels: Tensor  # int64 (m,)
    rows: Tensor  # int64 (m,)

    def pin_memory(self) -> Donated:
        return Donated(self.pixels.pin_memory(), self.labels.pin_memory(), self.rows.pin_memory())


@dataclass
class Batch:
    pixels: Tensor  # uint8 (n, H, W, 3)
    labels: Tensor  # int64 (n,)
    indices: Tensor  # int64 (n,)
    bad: list[BadImage] = field(default_factory=list)
    donated: Donated | None = None

    def pin_memory(self) -> Batch:
        return Batch(
            self.pixels.pin_memory(),
            self.labels.pin_memory(),
            self.indices.pin_memory(),
            self.bad,
            None if self.donated is None else self.donated.pin_memory(),
        )


class BatchPlan(Sampler[list[Place]]):
    """The batches of an epoch, from any step on; under several processes each takes its contiguous part of every batch.

    The last batch of an epoch is short, or left out (`drop_last`); it is padded so that processes have equal rows.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        seed: int,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
        weights: NDArray[np.float64] | None = None,
        views: int = 1,
    ) -> None:
        self.images, self.views = count, views
        count *= views  # rows of an epoch: the views of an image follow one another
        self.count, self.batch_size, self.seed, self.rank, self.world = count, batch_size, seed, rank, world
        self.weights = weights  # drawing with replacement by these weights in place of a permutation
        self.steps = count // batch_size if drop_last and count >= batch_size else -(-count // batch_size)
        self.epoch = self.start = 0

    def __len__(self) -> int:
        return self.steps - self.start

    def order(self, epoch: int) -> NDArray[np.int64]:
        rng = generator(self.seed, "order", epoch)
        if self.weights is None:
            order = rng.permutation(self.images)
        else:
            order = rng.choice(self.images, self.images, p=self.weights / self.weights.sum())
        return order.repeat(self.views)

    def rows(self, step: int) -> int:
        """Images of a step over all processes, without padding."""
        return min(self.batch_size, self.count - step * self.batch_size)

    def own_rows(self, step: int) -> int:
        """Images of a step in this process, without padding (which comes last)."""
        share = -(-self.rows(step) // self.world)
        return max(0, min(share, self.rows(step) - self.rank * share))

    def __iter__(self) -> Iterator[list[Place]]:
        order = self.order(self.epoch)
        for step in range(self.start, self.steps):
            first = step * self.batch_size
            rows = self.rows(step)
            share = -(-rows // self.world)
            mine = range(self.rank * share, (self.rank + 1) * share)
            yield [
                (int(order[first + r]), self.epoch, first + r) if r < rows else (int(order[first]), self.epoch, -1)
                for r in mine
            ]


class TrainDataset(Dataset[Batch]):
    """Whole batches (`__getitems__`), augmented. A file that cannot be read becomes an ignored row, and is reported."""

    def __init__(
        self,
        images: ImageSet,
        store: PixelStore,
        augmentation: Augmentation,
        *,
        seed: int,
        donors: Donors | None = None,
    ) -> None:
        self.images, self.store, self.augmentation, self.seed = images, store, augmentation, seed
        self.donors = donors

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, places: list[Place]) -> Batch:
        indices = np.asarray([i for i, _, _ in places], np.intp)
        positions = np.asarray([max(p, 0) for _, _, p in places], np.int64)
        labels = self.images.labels[indices].copy()
        labels[[p < 0 for _, _, p in places]] = IGNORE
        store, bad = _without_unreadable(self.store, self.images, indices, labels)
        pixels = self.augmentation.batch(store, indices, self.seed, places[0][1], positions)
        batch = Batch(
            torch.from_numpy(pixels), torch.from_numpy(labels), torch.from_numpy(indices.astype(np.int64)), bad
        )
        if self.donors is not None:
            batch.donated = self._donated(batch, places[0][1], positions)
        return batch

    def _donated(self, batch: Batch, epoch: int, positions: NDArray[np.int64]) -> Donated | None:
        """The donors' pixels, augmented as if they stood in the rows themselves, by a draw of their own."""
        assert self.donors is not None
        rows, indices = self.donors.draw(batch.labels.numpy(), epoch, positions)
        labels = self.images.labels[indices].copy()
        store, bad = _without_unreadable(self.store, self.images, indices, labels)
        batch.bad += bad
        read = labels != IGNORE
        rows, indices, labels = rows[read], indices[read], labels[read]
        if not len(rows):
            return None
        seed = derive(self.seed, "donors")
        pixels = self.augmentation.batch(store, indices, seed, epoch, positions[rows])
        return Donated(torch.from_numpy(pixels), torch.from_numpy(labels), torch.from_numpy(rows.astype(np.int64)))


class EvalDataset(Dataset[Batch]):
    """Whole batches through the evaluation transform, in order."""

    def __init__(self, images: ImageSet, store: PixelStore) -> None:
        self.images, self.store = images, store

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: list[int]) -> Batch:
        indices = np.asarray(rows, np.intp)
        labels = self.images.labels[indices].copy()
        store, bad = _without_unreadable(self.store, self.images, indices, labels)
        pixels = np.stack([store[i] for i in rows])
        return Batch(
            torch.from_numpy(pixels), torch.from_numpy(labels), torch.from_numpy(indices.astype(np.int64)), bad
        )


@dataclass(frozen=True)
class _Decoded:
    """The images of one batch, decoded, in place of the store that they came from."""

    parts: dict[int, NDArray[np.uint8]]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, i: int) -> NDArray[np.uint8]:
        return self.parts[i]


def _without_unreadable(
    store: PixelStore, images: ImageSet, indices: NDArray[np.intp], labels: NDArray[np.int64]
) -> tuple[PixelStore, list[BadImage]]:
    """Decode a batch; unreadable rows get the IGNORE label (in place) and a readable row's pixels (or grey)."""
    from calibrant.train.data.pixels import FileStore

    if not isinstance(store, FileStore):
        return store, []
    parts: dict[int, NDArray[np.uint8]] = {}
    bad: dict[int, BadImage] = {}
    for i in map(int, indices):
        if i in parts or i in bad:
            continue
        try:
            parts[i] = store[i]
        except DataError as error:
            bad[i] = BadImage(images.ids[i], error.what)
    if bad:
        spare = next(iter(parts.values()), None)
        for i in bad:
            # Pixels that the network may see without harm to its batch statistics; no loss sees the row.
            parts[i] = spare if spare is not None else store.prepare(_grey())
            labels[indices == i] = IGNORE
    return _Decoded(parts), list(bad.values())


def _grey() -> Any:
    from PIL import Image

    return Image.new("RGB", (256, 256), (128, 128, 128))


def make_loader(dataset: Dataset[Batch], batches: Any, *, workers: int, pin: bool) -> DataLoader[Batch]:
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=_as_it_is,
        pin_memory=pin,
        persistent_workers=workers > 0,
        worker_init_fn=_leave_interrupts_to_the_parent,
        generator=torch.Generator(),  # the loader draws a seed for its workers; not from the run's own stream
    )


def _leave_interrupts_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches the whole process group; a worker that died of it would tear down the update being finished."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_it_is(batch: Any) -> Any:
    return batch


def to_network(pixels: Tensor, preprocessing: Preprocessing, device: torch.device, *, channels_last: bool) -> Tensor:
    """uint8 (n, H, W, 3) to float NCHW on the device, by the arithmetic of Preprocessing.normalise."""
    x = pixels.to(device, non_blocking=True).permute(0, 3, 1, 2)  # already channels_last in memory
    mean, std = np.asarray(preprocessing.mean), np.asarray(preprocessing.std)
    scale = torch.from_numpy((1 / (255 * std)).astype(np.float32)).to(device)[:, None, None]
    shift = torch.from_numpy((mean / std).astype(np.float32)).to(device)[:, None, None]
    x = x.float() * scale - shift
    return x.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
