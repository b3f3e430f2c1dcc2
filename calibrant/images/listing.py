"""What lies in a folder or file: its images with labels, splits and groups, in whatever layout it is.

One listing for every command that takes images. What training needs of it (two classes, a label each, a validation set)
is asked in training; here a folder without labels and a folder of other classes are data too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL, split_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageListing:
    where: Path
    class_names: tuple[str, ...]  # empty where nothing is labelled
    sets: Mapping[str, ImageSet]  # by split, as the data bring them; "all" where they bring none
    named: bool = False  # the classes are named apart from the images, so that one may have none
    numbered: bool = False  # labels that are numbers may be those of a model's classes
    bare: str = "has images and no labels"  # what to say where there are none
    unread: tuple[str, ...] = field(default=(), repr=False)  # pictures of formats that are not read

    def of_split(self, split: str) -> ImageSet:
        """The images of a split; all of them where there are no splits."""
        found = self.sets.get(ALL if self.sets.keys() == {ALL} else split_name(split))
        if found is None or not len(found):
            known = ", ".join(self.sets)
            raise DataError(f'has no split "{split}"', where=self.where, fix=f"choose with --split: {known}")
        return found

    def known_to(self, class_names: Sequence[str], images: ImageSet, *, former: Sequence[str] = ()) -> ImageSet:
        """The images with labels in a model's numbering. Where some have none in it, all have the names of theirs.

        former: names that the classes bore before the model was relabelled, which the folders still bear.
        """
        if former and not set(self.class_names) <= set(class_names):
            known = set(self.class_names) <= set(former)
            class_names = former if known else self._each_by_its_name(class_names, former)
        own = self._own_numbers(class_names)
        table = np.asarray([*own, -1], np.int64)  # -1, no label, is the last of them
        labels = table[images.labels]
        if not np.any((labels < 0) & (images.labels >= 0)):
            return replace(images, labels=labels)
        named = (*self.class_names, None)
        strange = next(name for name, k in zip(self.class_names, own, strict=True) if k < 0)
        near = did_you_mean(strange, class_names)
        log.warning(
            '%s: %d of %d images are of classes that the model does not know ("%s"%s); the names are kept',
            self.where,
            int(np.sum((labels < 0) & (images.labels >= 0))),
            len(images),
            strange,
            f"; {near}" if near.startswith("did") else "",
        )
        return replace(images, labels=labels, label_names=tuple(named[k] for k in images.labels))

    def _each_by_its_name(self, class_names: Sequence[str], former: Sequence[str]) -> list[str]:
        """Of each class the one of its two names that stands here."""
        here = set(self.class_names) - set(class_names)
        return [old if old in here else now for now, old in zip(class_names, former, strict=True)]

    def _own_numbers(self, class_names: Sequence[str]) -> list[int]:
        """The number that a model has for each class; -1 for classes that it does not know."""
        index = {name: k for k, name in enumerate(class_names)}
        numbers = {n: int(n) for n in self.class_names if self.numbered and n.isdigit() and n not in index}
        if any(k >= len(class_names) for k in numbers.values()):  # then they are numbers of other classes
            numbers = {}
        return [index.get(name, numbers.get(name, -1)) for name in self.class_names]

    def whole(self) -> ImageSet:
        """The images of all splits, one after the other."""
        return joined(list(self.sets.values()))


def joined(sets: Sequence[ImageSet]) -> ImageSet:
    if len(sets) == 1:
        return sets[0]
    pixels = [s.pixels for s in sets if s.pixels is not None]
    return ImageSet(
        tuple(i for s in sets for i in s.ids),
        np.concatenate([s.labels for s in sets]),
        None if pixels else tuple(f for s in sets for f in s.files or ()),
        np.concatenate(pixels) if pixels else None,
    )


def warn_of_unread(where: Path, unread: Sequence[str]) -> None:
    """Say what lies there and is not read: people have phones whose pictures are HEIC."""
    if not unread:
        return
    kinds = Counter(Path(name).suffix.lower()[1:] for name in unread)
    told = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    log.warning(
        "%s: %d pictures are left out, their formats are not read: %s (%s)",
        where,
        len(unread),
        told,
        ", ".join(sorted(unread)[:3]) + (" ..." if len(unread) > 3 else ""),
    )
