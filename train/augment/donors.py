"""Which images of rare classes lend a patch to which rows of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError
from calibrant.train.seeds import uniform_rows


class Donors:
    """A row of a frequent class gets a donor with probability `rate`; donors are of classes drawn less than average.

    counts: (C,) how often each class is drawn in an epoch. A rare class is chosen in proportion to what it lacks of the
    average, its image evenly. Like everything random it is a function of (seed, epoch, position).
    """

    def __init__(self, labels: NDArray[np.int64], counts: NDArray[np.float64], *, rate: float, seed: int) -> None:
        self.rate, self.seed = rate, seed
        lack = np.maximum(0.0, counts.mean() - counts)
        lack[lack < 1e-9 * counts.mean()] = 0
        if not lack.any():
            raise ConfigError(
                "every class is drawn equally often, so none is rare", where="augment.transplant", fix="leave it out"
            )
        self.rare = lack > 0
        self.chance = lack / lack.sum()
        self._until = np.cumsum(self.chance)
        self._images = [np.flatnonzero(labels == k) if rare else None for k, rare in enumerate(self.rare)]
        self.counts = counts

    def draw(
        self, labels: NDArray[np.int64], epoch: int, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows that receive a patch, and the image that lends it to each. Labels below 0 (ignored) receive none."""
        u = uniform_rows(self.seed, "donors", epoch, positions=positions)
        receives = (labels >= 0) & ~self.rare[np.maximum(labels, 0)] & (u[:, 0] < self.rate)
        rows = np.flatnonzero(receives)
        classes = np.minimum(np.searchsorted(self._until, u[rows, 1], side="right"), np.flatnonzero(self.rare)[-1])
        images = [self._images[k] for k in classes]
        return rows, np.asarray(
            [i[int(v * len(i))] for i, v in zip(images, u[rows, 2], strict=True) if i is not None], np.intp
        )

    def label_mass(self, area: float) -> NDArray[np.float64]:
        """(C,) what the labels of an epoch sum to when a patch takes the share `area` of its image."""
        given = self.rate * area * np.where(self.rare, 0.0, self.counts)
        mass: NDArray[np.float64] = self.counts - given + given.sum() * self.chance
        return mass
