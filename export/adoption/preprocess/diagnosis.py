"""Which preprocessing was a network trained with? Labelled pictures tell colour order and scale, and no more.

Twelve candidates, colour order x normalisation, run on the same decoded pictures. The mean negative log-likelihood
decides, not accuracy. Shown are all whose paired difference from the best is within 2.9 standard errors (99 %,
Bonferroni over eleven): ImageNet's and CLIP's statistics are nearly the same and come as a pair. Resize and crop cannot
be told: what fits best need not be what it was trained with, so they only ever give a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import FLOOR
from calibrant.export.adoption.reading.original import Array, Original
from calibrant.images.declared.declaration import BYTES, SCALED, Declared, Three
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import progress

ERRORS = 2.9  # standard errors that tell candidates apart
NORMALISATIONS: dict[str, tuple[Three, Three]] = {
    "0-1": SCALED,
    "0-255": BYTES,
    "-1..1": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)),
    "CLIP": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}
RESIZES: dict[str, tuple[float | None, str]] = {  # share of the picture's shorter side that the crop keeps, filter
    "crop 0.875 bicubic": (0.875, "bicubic"), "crop 0.875 bilinear": (0.875, "bilinear"),
    "crop 0.875 nearest": (0.875, "nearest"), "whole shorter side": (1.0, "bicubic"), "crop 0.778": (0.778, "bicubic"),
    "squash": (None, "bicubic"),
}  # fmt: skip


@dataclass(frozen=True)
class Contender:
    name: str
    nll: float
    accuracy: float
    worse: float  # mean paired difference in NLL from the best
    error: float  # its standard error

    @property
    def fits(self) -> bool:
        return self.worse <= ERRORS * self.error

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "nll": self.nll,
            "accuracy": self.accuracy,
            "worse": self.worse,
            "error": self.error,
            "fits": self.fits,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Candidates, best first; `given` is the name of the declared one."""

    candidates: tuple[Contender, ...]
    given: str
    rows: int
    classes: int
    resizes: tuple[Contender, ...] = ()

    @property
    def fitting(self) -> tuple[Contender, ...]:
        return tuple(c for c in self.candidates if c.fits)

    @property
    def declared(self) -> Contender:
        return next(c for c in self.candidates if c.name == self.given)

    @property
    def blind(self) -> bool:
        """Does the network know nothing of these pictures, however they are prepared?"""
        chance = 1 / self.classes
        limit = chance + 3 * float(np.sqrt(chance * (1 - chance) / self.rows))
        return max(c.accuracy for c in self.candidates) <= limit

    @property
    def agrees(self) -> bool:
        return self.blind or self.declared.fits

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "given": self.given, "agrees": self.agrees, "knows_nothing": self.blind,
            "fitting": [c.name for c in self.fitting], "candidates": [c.to_dict() for c in self.candidates],
            "resizes": [c.to_dict() for c in self.resizes],
        }  # fmt: skip


def candidates_of(declared: Declared, *, scaled_inside: bool = False) -> dict[str, Declared]:
    """The twelve, or the two colour orders where the scale is inside; the declared one among them, under its name."""
    found: dict[str, Declared] = {}
    for bgr in (False, True):
        for name, (mean, std) in NORMALISATIONS.items():
            if scaled_inside and name != "0-255":
                continue
            p = replace(declared.preprocessing, mean=mean, std=std)
            colour = "BGR" if bgr else "RGB"
            found[colour if scaled_inside else f"{colour} {name}"] = replace(declared, preprocessing=p, bgr=bgr)
    if given_name(declared, found) is None:
        found["as given"] = declared
    return found


def given_name(declared: Declared, candidates: Mapping[str, Declared]) -> str | None:
    """The candidate that is the declared one."""
    p = declared.preprocessing
    for name, c in candidates.items():
        q = c.preprocessing
        if c.bgr == declared.bgr and np.allclose([*p.mean, *p.std], [*q.mean, *q.std], rtol=2e-3, atol=1e-6):
            return name
    return None


def diagnose(original: Original, declared: Declared, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Diagnosis:
    """Colour order and normalisation, on pictures that are resized and cropped already."""
    candidates = candidates_of(declared, scaled_inside=original.taken.scaled_inside)
    given = given_name(declared, candidates) or next(iter(candidates))
    losses, right = {}, {}
    for name in progress(candidates, what="preprocessing", unit="candidates"):
        p = original.of_pixels(pixels, candidates[name])
        losses[name], right[name] = row_losses(p, labels), p.argmax(1) == labels
    return Diagnosis(ranked(losses, right), given, len(labels), original.classes)


def with_resizes(
    found: Diagnosis,
    original: Original,
    declared: Declared,
    decode: Callable[[Preprocessing], NDArray[np.uint8]],
    labels: NDArray[np.int64],
) -> Diagnosis:
    """The six ways to resize and crop beside the declared one, at the colour order and normalisation that fit best."""
    best = candidates_of(declared, scaled_inside=original.taken.scaled_inside)[found.candidates[0].name]
    p = best.preprocessing
    ways = {"as given": p}
    for name, (share, kind) in RESIZES.items():
        resize = max(p.size) if share is None else round(max(p.size) / share)
        crop: Any = "squash" if share is None else "center"
        ways[name] = replace(p, resize=resize, crop=crop, interpolation=kind)  # type: ignore[arg-type]
    losses, right = {}, {}
    for name in progress(ways, what="resize and crop", unit="candidates"):
        q = original.of_pixels(decode(ways[name]), replace(best, preprocessing=ways[name]))
        losses[name], right[name] = row_losses(q, labels), q.argmax(1) == labels
    return replace(found, resizes=ranked(losses, right))


def ranked(losses: Mapping[str, Array], right: Mapping[str, NDArray[np.bool_]]) -> tuple[Contender, ...]:
    """Best mean loss first, each with its paired difference from the best."""
    order = sorted(losses, key=lambda name: float(losses[name].mean()))
    best, rows = losses[order[0]], len(losses[order[0]])

    def one(name: str) -> Contender:
        gap = losses[name] - best
        error = float(gap.std(ddof=1) / np.sqrt(rows)) if rows > 1 else float("inf")
        return Contender(name, float(losses[name].mean()), float(right[name].mean()), float(gap.mean()), error)

    return tuple(map(one, order))


def row_losses(p: Array, labels: NDArray[np.int64]) -> Array:
    """-log p of the true class, of each row."""
    return np.asarray(-np.log(np.maximum(p[np.arange(len(labels)), labels], FLOOR)))


def hint(original: Original, declared: Declared, pixels: NDArray[np.uint8]) -> tuple[str, str]:
    """Without labels: the candidate of the highest mean confidence, and the declared one. A hint, not a finding."""
    candidates = candidates_of(declared, scaled_inside=original.taken.scaled_inside)
    sure = {name: float(original.of_pixels(pixels, c).max(1).mean()) for name, c in candidates.items()}
    return max(sure, key=sure.__getitem__), given_name(declared, candidates) or "as given"
