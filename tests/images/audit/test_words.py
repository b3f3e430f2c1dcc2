"""Nothing odd, nothing said; a class of few is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.images.audit.check import check
from calibrant.images.audit.look import Look
from calibrant.images.audit.words import sentences
from calibrant.images.image_set import ImageSet
from calibrant.images.listing import ImageListing


def said(counts: tuple[int, ...]) -> list[str]:
    labels = np.repeat(np.arange(len(counts)), counts)
    ids = tuple(f"{i}.jpg" for i in range(len(labels)))
    hashes = np.random.default_rng(0).integers(0, 2**63, (len(ids), 2), dtype=np.uint64)
    looks = [Look(i, i, 90, 80, int(p), int(d)) for i, (p, d) in zip(ids, hashes, strict=True)]
    images = ImageSet(ids, labels, files=tuple(map(Path, ids)))
    listing = ImageListing(Path("in"), tuple("abc"[: len(counts)]), {"all": images})
    return sentences(check(listing, {"all": looks}))


def test_good_data_are_not_commented_upon() -> None:
    assert said((20, 22)) == []


def test_small_classes_and_long_tails_are() -> None:
    assert said((40, 30, 4)) == ["1 class with fewer than 10 images: c", "classes from 4 to 40 images: a long tail"]
