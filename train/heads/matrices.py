"""The rows of a feature cache as a head is trained on them and asked about them: views side by side, or averaged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.settings.heads import HeadDataConfig
from calibrant.train.heads.features.cache import FeatureCache, FeatureRows
from calibrant.train.heads.training.row_views import RowViews


class Matrices:
    """A cache in memory, each (split, view) read once."""

    def __init__(self, cache: FeatureCache) -> None:
        self.cache = cache
        self._read: dict[tuple[str, str], FeatureRows] = {}

    def part(self, split: str, view: str) -> FeatureRows:
        key = (split, view)
        if key not in self._read:
            self._read[key] = self.cache.read(split, view)
        return self._read[key]

    def averaged(self, split: str, views: Sequence[str], rows: NDArray[np.intp] | None = None) -> FeatureRows:
        """Features averaged over views: of a linear head the same as averaging logits."""
        parts = [self.part(split, view) for view in views]
        first = parts[0]
        index = np.arange(len(first.labels)) if rows is None else rows
        total = parts[0].features[index].copy()
        for p in parts[1:]:
            total += p.features[index]
        if len(parts) > 1:
            total /= len(parts)
        return FeatureRows(tuple(first.ids[i] for i in index), first.labels[index], total)

    def shown(self, split: str, data: HeadDataConfig, rows: NDArray[np.intp] | None = None) -> tuple[FeatureRows, ...]:
        """What a head is asked about: the mean of the test views, or each of them where their logits are averaged."""
        if data.average == "features":
            return (self.averaged(split, data.test_views, rows),)
        return tuple(self.averaged(split, [view], rows) for view in data.test_views)

    def stacked(self, split: str, views: Sequence[str], rows: NDArray[np.intp]) -> tuple[Tensor, Tensor, RowViews]:
        """Every view of every row, one view after the other; of mixed views those whose second image is a row too.

        An image that was held out would else be trained on through the part of it that lies in another one.
        """
        parts = [self.part(split, view) for view in views]
        place = {id: i for i, id in enumerate(parts[0].ids)}
        partners = [None if p.partners is None else np.asarray([place[i] for i in p.partners]) for p in parts]
        kept = [rows if of is None else rows[np.isin(of[rows], rows)] for of in partners]
        x = np.concatenate([p.features[index] for p, index in zip(parts, kept, strict=True)])
        y = np.concatenate([p.labels[index] for p, index in zip(parts, kept, strict=True)])
        other = share = None
        if any(of is not None for of in partners):
            seen = [index if of is None else of[index] for of, index in zip(partners, kept, strict=True)]
            shares = [
                np.ones(len(index), np.float32) if p.shares is None else p.shares[index]
                for p, index in zip(parts, kept, strict=True)
            ]
            other = torch.from_numpy(parts[0].labels[np.concatenate(seen)])
            share = torch.from_numpy(np.concatenate(shares))
        return torch.from_numpy(x), torch.from_numpy(y), RowViews(torch.from_numpy(np.concatenate(kept)), other, share)
