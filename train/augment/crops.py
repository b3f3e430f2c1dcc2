"""Random crops and flips of training images, each a function of eight uniform numbers.

The numbers come from a counter-based generator at the sample's place in the epoch, so an image looks the same however
many workers or processes there are and wherever a run was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.policies import Policies
from calibrant.train.augment.policies import wanted as policies_wanted
from calibrant.train.config import AugmentConfig
from calibrant.train.data.pixels import ArrayStore, Pixels, PixelStore
from calibrant.train.seeds import uniform_rows

Crop = Callable[[Pixels, NDArray[np.float64]], Pixels]


class Augmentation:
    """Pixels of a batch: (indices, seed, epoch, positions) -> uint8 (n, H, W, 3)."""

    def __init__(self, config: AugmentConfig, preprocessing: Preprocessing) -> None:
        self.config, self.preprocessing = config, preprocessing
        self.height, self.width = preprocessing.size
        self._filter = getattr(Image.Resampling, preprocessing.interpolation.upper())
        crops: dict[str, Crop] = {
            "random-resized": self._random_resized, "resized": self._resized, "pad": self._pad, "none": self._none,
        }  # fmt: skip
        self._crop = crops[config.crop]
        self._policies = Policies(config, preprocessing) if policies_wanted(config) else None

    @property
    def wants_evaluation_pixels(self) -> bool:
        """Whether crops start from what the evaluation transform gives, or from the whole image."""
        return self.config.crop in ("pad", "none")

    def sample(self, pixels: Pixels, u: NDArray[np.float64]) -> Pixels:
        """One image; u: eight uniform numbers."""
        return self._flip(self._crop(pixels, u), u)

    def batch(
        self, store: PixelStore, indices: NDArray[np.intp], seed: int, epoch: int, positions: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        u = uniform_rows(seed, "augment", epoch, positions=positions)
        if isinstance(store, ArrayStore) and self.wants_evaluation_pixels:
            out = self._whole_batch(store.array[indices], u)
        else:
            out = np.empty((len(indices), self.height, self.width, 3), np.uint8)
            for row, i in enumerate(indices):
                out[row] = self.sample(store[int(i)], u[row])
        if self._policies is not None:
            for row, position in enumerate(positions):
                out[row] = self._policies(out[row], seed, epoch, int(position))
        return out

    def _whole_batch(self, batch: NDArray[np.uint8], u: NDArray[np.float64]) -> NDArray[np.uint8]:
        """The same as `sample` on each row, by indexing the batch at once."""
        if self.config.crop == "pad":
            down, across = self._padding()
            padded = np.pad(batch, ((0, 0), (down, down), (across, across), (0, 0)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (self.height, self.width), axis=(1, 2))
            top, left = (u[:, 0] * (2 * down + 1)).astype(int), (u[:, 1] * (2 * across + 1)).astype(int)
            batch = windows[np.arange(len(batch)), top, left].transpose(0, 2, 3, 1)
        batch = np.ascontiguousarray(batch)
        if self.config.flip != "none":
            mirrored = u[:, 6] < 0.5
            batch[mirrored] = batch[mirrored, :, ::-1]
        if self.config.flip == "both":
            upside_down = u[:, 7] < 0.5
            batch[upside_down] = batch[upside_down, ::-1]
        return batch

    def _flip(self, pixels: Pixels, u: NDArray[np.float64]) -> Pixels:
        if self.config.flip != "none" and u[6] < 0.5:
            pixels = pixels[:, ::-1]
        if self.config.flip == "both" and u[7] < 0.5:
            pixels = pixels[::-1]
        return pixels

    def _random_resized(self, pixels: Pixels, u: NDArray[np.float64]) -> Pixels:
        """A box of a random share of the area and a random aspect ratio (log-uniform), resized to the crop.

        The ratio is relative to the shape of the network's input, which is torchvision's for a square. Differs: one
        draw, cut to the image, where torchvision draws again up to ten times.
        """
        height, width = pixels.shape[:2]
        low, high = self.config.scale
        area = height * width * (low + (high - low) * u[2])
        r0, r1 = map(math.log, self.config.ratio)
        ratio = math.exp(r0 + (r1 - r0) * u[3]) * self.width / self.height
        w, h = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
        left, top = u[1] * (width - w), u[0] * (height - h)
        return self._box(pixels, (left, top, left + w, top + h))

    def _resized(self, pixels: Pixels, u: NDArray[np.float64]) -> Pixels:
        """The image squashed to size * (1 + pad) on both sides, then a random crop: one resampling step for both."""
        height, width = pixels.shape[:2]
        keep = 1 / (1 + self.config.pad)
        left, top = u[1] * (1 - keep) * width, u[0] * (1 - keep) * height
        return self._box(pixels, (left, top, left + keep * width, top + keep * height))

    def _box(self, pixels: Pixels, box: tuple[float, float, float, float]) -> Pixels:
        size = (self.width, self.height)
        return np.asarray(Image.fromarray(pixels).resize(size, self._filter, box=box), np.uint8)

    def _padding(self) -> tuple[int, int]:
        return round(self.config.pad * self.height), round(self.config.pad * self.width)

    def _pad(self, pixels: Pixels, u: NDArray[np.float64]) -> Pixels:
        """Black borders of `pad` times the size, then a random crop."""
        down, across = self._padding()
        padded = np.pad(pixels, ((down, down), (across, across), (0, 0)))
        top, left = int(u[0] * (2 * down + 1)), int(u[1] * (2 * across + 1))
        return padded[top : top + self.height, left : left + self.width]

    def _none(self, pixels: Pixels, u: NDArray[np.float64]) -> Pixels:
        return pixels
