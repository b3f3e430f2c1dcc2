"""The first step: look at every image, and settle which rows train, which judge and which are laid aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import write_json
from calibrant.commands.fit.plan import Wanted
from calibrant.commands.fit.project import Project, digest_of
from calibrant.errors import DataError
from calibrant.images.audit.check import DataCheck, check
from calibrant.images.audit.look import look_at
from calibrant.images.audit.words import sentences
from calibrant.images.image_set import ImageSet
from calibrant.images.layout import Wishes
from calibrant.images.layouts import list_images
from calibrant.images.listing import ImageListing, joined

MANY, ENOUGH_A_CLASS = 2000, 50  # from here on a test set can be spared
TEN_FOLDS, FIVE_FOLDS = 2000, 20_000  # fewer rows: ten folds; fewer than the second: five; else one part in five
CHECK_FILE = "data.json"


@dataclass(frozen=True)
class Rows:
    """The images in their parts. `learn`: what trains and judges; `test`: what decides nothing."""

    listing: ImageListing
    check: DataCheck
    learn: ImageSet
    test: ImageSet | None
    folds: NDArray[np.intp]  # of each row of learn; negative: never judged
    judged: NDArray[np.bool_]  # of each row of learn; a copy with another label judges nothing
    leaked: NDArray[np.bool_]  # of each row of test
    given_test: bool

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.listing.class_names

    @property
    def parts(self) -> int:
        return len(set(self.folds[self.folds >= 0].tolist()))

    def says(self) -> str:
        if self.test is not None:
            kind = "given and untouched until the end" if self.given_test else "laid aside for the verdict"
            test = f"{len(self.test):,} test images ({kind})"
        else:
            test = "no test images to spare: the verdict is cross-validated"
        how = f"{self.parts} folds" if self.parts > 1 else "a fifth judges"
        return f"{len(self.learn):,} images learn and judge in {how}; {test}"


def settle(wanted: Wanted, project: Project, *, workers: int) -> tuple[Rows, list[str]]:
    """The rows and what is to be said of the data. Done again each time: a look takes a millisecond an image."""
    from calibrant.train.data.split import refuse_for_training

    listing = list_images(wanted.images, Wishes(wanted.groups))
    listing = _known_splits(listing)
    refuse_for_training(listing)
    project.same_images(digest_of(_names(listing)))
    found = check(listing, {split: look_at(images, workers=workers) for split, images in listing.sets.items()})
    said = sentences(found)
    rows = divided(listing, found, seed=wanted.seed)
    if project.done("data") is None:
        write_json(project.path / CHECK_FILE, found.to_dict())
        project.finish("data", {"images_sha256": digest_of(_names(listing)), "rows": rows.says(), "findings": said})
    return rows, said


def _known_splits(listing: ImageListing) -> ImageListing:
    strange = next((s for s in listing.sets if s not in ("train", "val", "test", "all")), None)
    if strange is not None:
        raise DataError(f'split "{strange}" is not train, val or test', where=listing.where)
    return listing


def _names(listing: ImageListing) -> Mapping[str, Any]:
    return {s: [list(images.ids), images.labels.tolist()] for s, images in listing.sets.items()}


def divided(listing: ImageListing, found: DataCheck, *, seed: int) -> Rows:
    """Folds and, where there is none and images enough, a test set: by class, by group, and by hash."""
    from calibrant.train.data.folds import held_out

    left_out = {*found.unreadable, *found.doubled}
    kept = np.asarray([i not in left_out for i in range(len(found.ids))], bool)
    is_test = np.asarray([split == "test" for split in found.splits], bool)
    learn = np.flatnonzero(kept & ~is_test)
    labels = found.labels[learn]
    names = [found.ids[found.group[i]] for i in learn]
    given = bool((kept & is_test).any())
    test = np.flatnonzero(kept & is_test)
    counts = np.bincount(labels, minlength=len(found.class_names))
    _refuse_bare(counts, found.class_names, listing)
    if not given and len(learn) >= MANY and counts.min() >= ENOUGH_A_CLASS:
        aside = held_out(labels, names, 0.2, seed=seed)
        test, learn = learn[aside], learn[~aside]
        labels, names = found.labels[learn], [found.ids[found.group[i]] for i in learn]
    folds = _folds(labels, names, seed)
    whole = joined(list(listing.sets.values()))
    doubtful = np.asarray([i in found.doubtful for i in learn], bool)
    leaked = np.asarray([i in found.leaked for i in test], bool)
    judged = (folds >= 0) & ~doubtful
    if not judged.any():
        raise DataError("no image can judge: every class has one picture only", where=listing.where, fix="add images")
    return Rows(
        listing, found, whole.rows(learn), whole.rows(test) if len(test) else None, folds, judged, leaked, given
    )


def _folds(labels: NDArray[np.int64], names: list[str], seed: int) -> NDArray[np.intp]:
    from calibrant.train.data.folds import ALWAYS_TRAINS, stable_folds

    if len(labels) < FIVE_FOLDS:
        return stable_folds(labels, names, 10 if len(labels) < TEN_FOLDS else 5, seed=seed)
    folds = stable_folds(labels, names, 5, seed=seed)
    return np.where(folds == 0, 0, ALWAYS_TRAINS)


def _refuse_bare(counts: NDArray[np.int64], names: tuple[str, ...], listing: ImageListing) -> None:
    bare = [names[k] for k in np.flatnonzero(counts == 0)]
    if bare:
        raise DataError(f'class "{bare[0]}" has no training image that can be read', where=listing.where)
