"""The data check: what a set of images with labels and splits is like, and what of it should be acted upon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.images.audit.copies import chained, near_pairs, united
from calibrant.images.audit.look import Look
from calibrant.images.listing import ImageListing

SMALL_SIDE = 32  # a shorter side shows next to nothing
LONG = 4.0  # sides further apart than that: a strip
FEW = 10  # images of a class


@dataclass(frozen=True)
class Pair:
    """Two images that show one picture. Positions in the order of all images."""

    first: int
    second: int
    bits: int  # that differ; of byte-equal files 0
    equal: bool  # byte for byte
    two_labels: bool
    splits: tuple[str, str]

    @property
    def leak(self) -> bool:
        """The test set holds what was trained on."""
        return self.splits[0] != self.splits[1] and "test" in self.splits


@dataclass(frozen=True)
class DataCheck:
    """Everything by position in the order of the listing's splits, one after the other."""

    class_names: tuple[str, ...]
    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    splits: tuple[str, ...]  # of each image
    looks: tuple[Look, ...]
    pairs: tuple[Pair, ...]
    group: NDArray[np.intp]  # images of one group never part
    unread: tuple[str, ...] = ()  # pictures of formats that are not read

    @property
    def unreadable(self) -> tuple[int, ...]:
        return tuple(i for i, look in enumerate(self.looks) if look.trouble is not None)

    @property
    def blank(self) -> tuple[int, ...]:
        return tuple(i for i, look in enumerate(self.looks) if look.blank)

    @property
    def small(self) -> tuple[int, ...]:
        return tuple(i for i, look in enumerate(self.looks) if 0 < min(look.width, look.height) < SMALL_SIDE)

    @property
    def strips(self) -> tuple[int, ...]:
        """Images so long that the centre crop shows little of them."""
        found = ((i, sorted((look.width, look.height))) for i, look in enumerate(self.looks))
        return tuple(i for i, (short, long) in found if short and long > LONG * short)

    @property
    def conflicts(self) -> tuple[Pair, ...]:
        """One picture under two labels."""
        return tuple(p for p in self.pairs if p.two_labels)

    @property
    def leaks(self) -> tuple[Pair, ...]:
        return tuple(p for p in self.pairs if p.leak)

    @property
    def doubled(self) -> tuple[int, ...]:
        """Byte-equal copies within a split and a label, all but the first: one of them is enough."""
        return tuple(
            sorted({p.second for p in self.pairs if p.equal and not p.two_labels and p.splits[0] == p.splits[1]})
        )

    @property
    def doubtful(self) -> frozenset[int]:
        """Images of which a copy has another label: no measure of right and wrong."""
        return frozenset(i for p in self.conflicts for i in (p.first, p.second))

    @property
    def leaked(self) -> frozenset[int]:
        """Test images that are in training too."""
        return frozenset(i for p in self.leaks for i in (p.first, p.second) if self.splits[i] == "test")

    def counts(self, split: str | None = None) -> NDArray[np.int64]:
        chosen = np.asarray([split in (None, s) for s in self.splits], bool)
        return np.bincount(self.labels[chosen], minlength=len(self.class_names)).astype(np.int64)

    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(width, height) of the smallest and the largest image by their shorter side."""
        known = [(look.width, look.height) for look in self.looks if look.width and look.trouble is None]
        return min(known, key=min), max(known, key=min)

    def to_dict(self) -> dict[str, Any]:
        """What is worth keeping: counts of all, names of the first of each kind."""
        splits = list(dict.fromkeys(self.splits))
        smallest, largest = self.sizes()
        return {
            "kind": "data-check", "format_version": 1, "classes": list(self.class_names),
            "counts": {split: self.counts(split).tolist() for split in splits},
            "sizes": {"smallest": list(smallest), "largest": list(largest)},
            "unreadable": [{"id": self.ids[i], "why": self.looks[i].trouble} for i in self.unreadable],
            "formats_not_read": dict(Counter(Path(name).suffix.lower()[1:] for name in self.unread)),
            "blank": self._named(self.blank), "small": self._named(self.small), "strips": self._named(self.strips),
            "doubled": self._named(self.doubled),
            "pairs": [
                {
                    "images": [self.ids[p.first], self.ids[p.second]], "bits": p.bits, "equal": p.equal,
                    "labels": [self.class_names[self.labels[i]] for i in (p.first, p.second)],
                    "splits": list(p.splits), "leak": p.leak,
                }
                for p in self.pairs
            ],
        }  # fmt: skip

    def _named(self, rows: Sequence[int]) -> list[str]:
        return [self.ids[i] for i in rows]


def check(listing: ImageListing, looks: Mapping[str, Sequence[Look]]) -> DataCheck:
    """The findings on a listing; `looks` as `look_at` gives them, by split."""
    splits = tuple(split for split, images in listing.sets.items() for _ in range(len(images)))
    ids = tuple(id for images in listing.sets.values() for id in images.ids)
    labels = np.concatenate([images.labels for images in listing.sets.values()])
    seen = tuple(look for split in listing.sets for look in looks[split])
    fit = np.asarray([i for i, look in enumerate(seen) if look.trouble is None and not look.blank], np.intp)
    p = np.asarray([seen[i].p_hash for i in fit], np.uint64)
    d = np.asarray([seen[i].d_hash for i in fit], np.uint64)
    found = {(int(fit[a]), int(fit[b])): bits for a, b, bits in near_pairs(p, d)}
    readable = [i for i, look in enumerate(seen) if look.trouble is None]
    for a, b in chained([seen[i].sha256 for i in readable]):  # blank pictures among them
        found[readable[a], readable[b]] = 0
    pairs = tuple(
        Pair(
            a,
            b,
            bits,
            seen[a].sha256 == seen[b].sha256,
            bool(labels[a] != labels[b]),
            (splits[a], splits[b]),
        )
        for (a, b), bits in sorted(found.items(), key=lambda item: (item[1], item[0]))
    )
    tied = [(p.first, p.second) for p in pairs] + _grouped(listing)
    return DataCheck(listing.class_names, ids, labels, splits, seen, pairs, united(len(ids), tied), listing.unread)


def _grouped(listing: ImageListing) -> list[tuple[int, int]]:
    """Pairs of images that the data name as one group."""
    names = [
        f"group {images.groups[i]}" if images.groups is not None else f"image {split} {i}"
        for split, images in listing.sets.items()
        for i in range(len(images))
    ]
    return chained(names)
