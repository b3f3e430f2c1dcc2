"""Procedural leaves: a fine-grained, long-tailed image set that needs no download.

A class is a point in a space of leaf traits (outline, teeth, lobes, veins, colour); its images scatter around that
point and are then bent, turned, lit and photographed on soil. `inter` scales the distance between the class points,
`intra` the scatter inside a class and all that the photograph adds. Fine-grained means that the second is larger than
the first: with both at 1, single traits overlap widely between classes and only several together tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError
from calibrant.progress import progress

_GENERA = ("acer", "betula", "carpinus", "fagus", "prunus", "quercus", "salix", "sorbus", "tilia", "ulmus")
_SPECIES = ("alba", "borealis", "campestris", "dentata", "elegans", "glabra", "laevis", "montana", "nigra", "rubra")

# trait: (typical value, scale of one unit of class distance or scatter). Chosen by eye on contact sheets.
_TRAITS: dict[str, tuple[float, float]] = {
    "slimness": (0.52, 0.085),  # half width over half length
    "widest": (0.95, 0.16),  # exponent on the way along the midrib: < 1 widest near the base
    "roundness": (0.80, 0.13),  # exponent of the outline: small is blunt, large is pointed
    "teeth": (13.0, 3.2),  # number along one side
    "tooth_depth": (0.075, 0.028),
    "lobes": (3.2, 0.85),
    "lobe_depth": (0.16, 0.07),
    "vein_count": (6.0, 1.25),
    "vein_slope": (0.85, 0.17),
    "vein_contrast": (0.33, 0.07),
    "hue": (0.27, 0.022),
    "saturation": (0.55, 0.06),
    "value": (0.55, 0.05),
    "gloss": (0.16, 0.06),
}
_NAMES = tuple(_TRAITS)
_TYPICAL = np.array([v[0] for v in _TRAITS.values()])
_SCALE = np.array([v[1] for v in _TRAITS.values()])


@dataclass(frozen=True)
class LeafSpec:
    """What set to draw: the same spec gives the same images, byte for byte."""

    classes: int = 10
    train_images: int = 120  # of the most frequent class
    val_images: int = 60  # of the most frequent class; follows the training prior
    test_images: int = 60  # of every class: the test set is balanced
    intra: float = 1.0
    inter: float = 1.0
    imbalance: float = 10.0  # most frequent class over rarest
    size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("classes", 2), ("train_images", 2), ("val_images", 1), ("test_images", 1), ("size", 16)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} = {getattr(self, name)}, must be at least {low}", where="leaves")
        if self.classes > len(_GENERA) * len(_SPECIES):
            raise ConfigError(f"classes = {self.classes}, must be at most 100", where="leaves")
        if self.imbalance < 1 or self.intra < 0 or self.inter < 0:
            raise ConfigError("imbalance must be >= 1, intra and inter >= 0", where="leaves")

    def class_names(self) -> list[str]:
        """Frequent classes first; the names sort in that order, so that class 0 is the head of the tail."""
        order = np.random.default_rng([self.seed, 1]).permutation(len(_GENERA) * len(_SPECIES))[: self.classes]
        return [f"{_GENERA[i // 10]} {_SPECIES[i % 10]}" for i in np.sort(order)]

    def counts(self, most: int) -> list[int]:
        """Exponential profile from `most` down to most / imbalance, never below 2."""
        ranks = np.arange(self.classes) / (self.classes - 1)
        return [max(2, round(float(n))) for n in most * self.imbalance**-ranks]

    def class_points(self) -> NDArray[np.float64]:
        """(classes, traits) in units of trait scale, spread so that no two classes coincide by chance."""
        rng = np.random.default_rng([self.seed, 2])
        # Of many draws keep the one whose closest pair is farthest apart: hard, but not impossible.
        draws = rng.normal(size=(64, self.classes, len(_NAMES)))
        gaps = ((draws[:, :, None] - draws[:, None, :]) ** 2).sum(-1) + 1e9 * np.eye(self.classes)
        points: NDArray[np.float64] = self.inter * draws[gaps.min(axis=(1, 2)).argmax()]
        return points


def write_leaves(out: str | Path, spec: LeafSpec) -> Path:
    """Writes `out/{train,val,test}/CLASS/NNNN.png` and returns `out`."""
    from PIL import Image

    out = Path(out)
    names, points = spec.class_names(), spec.class_points()
    jobs = list(_jobs(spec))
    for split, label, index in progress(jobs, what="drawing leaves", unit="img"):
        # A generator per image: the images of a class do not change when another class gets more of them.
        rng = np.random.default_rng([spec.seed, 3, ("train", "val", "test").index(split), label, index])
        picture = leaf_image(points[label], intra=spec.intra, size=spec.size, rng=rng)
        path = out / split / names[label] / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path, compress_level=1)
    return out


def leaf_image(point: NDArray[np.float64], *, intra: float, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One leaf of the class at `point` (in trait scales): uint8 [size, size, 3]."""
    scatter = rng.normal(size=len(_NAMES)).clip(-2.5, 2.5)
    traits = dict(zip(_NAMES, _TYPICAL + _SCALE * (point + intra * scatter), strict=True))
    side = 2 * size  # drawn at twice the size and averaged: smooth edges
    along, across = _leaf_frame(side, intra, rng)
    way = ((along + 1) / 2).clip(1e-6, 1 - 1e-6)  # 0 at the stalk, 1 at the tip

    half_width = _outline(way, traits, rng)
    inside = (np.abs(along) < 1) & (np.abs(across) < half_width)
    stalk = (along < -0.95) & (along > -1.35) & (np.abs(across) < 0.022)

    leaf = _leaf_colour(way, across, half_width, traits, intra, rng)
    ground = _ground(side, intra, rng)
    shadow = _smooth(inside.astype(np.float32), side // 24 + 1)
    ground = ground * (1 - 0.45 * np.roll(shadow, (side // 30, side // 30), axis=(0, 1))[..., None])
    picture = np.where((inside | stalk)[..., None], leaf, ground)

    light = 1 + intra * (rng.normal() * 0.10 + 0.16 * _slope(side, rng))
    cast = 1 + intra * 0.04 * rng.normal(size=3)
    picture = picture * light[..., None] * cast
    picture = picture.reshape(size, 2, size, 2, 3).mean(axis=(1, 3))
    picture += intra * 0.02 * rng.normal(size=picture.shape)
    pixels: NDArray[np.uint8] = (255 * picture.clip(0, 1) + 0.5).astype(np.uint8)
    return pixels


def _jobs(spec: LeafSpec) -> Iterable[tuple[str, int, int]]:
    test = [spec.test_images] * spec.classes
    for split, counts in (
        ("train", spec.counts(spec.train_images)),
        ("val", spec.counts(spec.val_images)),
        ("test", test),
    ):
        for label, count in enumerate(counts):
            for index in range(count):
                yield split, label, index


def _leaf_frame(side: int, intra: float, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates along and across the midrib for every pixel, the leaf reaching from -1 to 1."""
    y, x = np.mgrid[0:side, 0:side] / side * 2 - 1
    angle = -np.pi / 2 + intra * rng.normal() * 0.7
    zoom = 0.86 * np.exp(intra * rng.normal() * 0.10)
    x, y = x - intra * rng.normal() * 0.08, y - intra * rng.normal() * 0.08
    along = (x * np.cos(angle) + y * np.sin(angle)) / zoom
    across = (-x * np.sin(angle) + y * np.cos(angle)) / zoom
    across = across - intra * rng.normal() * 0.13 * (along**2 - 0.4)  # the leaf bends
    across = across * (1 + intra * abs(rng.normal()) * 0.16 * np.sign(across))  # and is tilted to one side
    return along, across


def _outline(way: NDArray[np.float64], traits: dict[str, float], rng: np.random.Generator) -> NDArray[np.float64]:
    blade = np.sin(np.pi * way ** max(0.45, traits["widest"])) ** max(0.35, traits["roundness"])
    lobes = 1 + max(0.0, traits["lobe_depth"]) * np.cos(2 * np.pi * max(1.0, traits["lobes"]) * way + 0.6)
    saw = (way * max(4.0, traits["teeth"]) + rng.random()) % 1.0
    teeth = 1 - max(0.0, traits["tooth_depth"]) * saw * 2
    width: NDArray[np.float64] = max(0.2, traits["slimness"]) * blade * lobes * teeth
    return width


def _leaf_colour(
    way: NDArray[np.float64],
    across: NDArray[np.float64],
    half_width: NDArray[np.float64],
    traits: dict[str, float],
    intra: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    side = way.shape[0]
    texture = _noise(side, 10, rng)
    value = traits["value"] * (1 + 0.16 * texture + traits["gloss"] * np.sign(across) * 0.6)
    # Lateral veins leave the midrib at a slope; brightness falls off with the distance to the nearest one.
    phase = (way - np.abs(across) * traits["vein_slope"]) * max(2.0, traits["vein_count"])
    lateral = np.exp(-((np.abs(phase % 1.0 - 0.5) / 0.09) ** 2))
    midrib = np.exp(-((across / 0.028) ** 2))
    veins = np.maximum(0.75 * lateral, midrib) * max(0.05, traits["vein_contrast"])
    edge = np.exp(-(((half_width - np.abs(across)) / 0.03).clip(0) ** 2))
    hue = traits["hue"] - 0.05 * _noise(side, 4, rng) * intra
    saturation = (traits["saturation"] - 0.55 * veins).clip(0, 1)
    colour = _hsv_to_rgb(hue, saturation, (value + 0.75 * veins - 0.08 * edge).clip(0, 1))
    blight = _noise(side, 7, rng) - 1.7 + 0.55 * intra * abs(rng.normal())
    mask = (blight.clip(0, 0.5) * 2)[..., None]
    brown = np.array([0.42, 0.29, 0.15]) * (1 + 0.2 * texture[..., None])
    blended: NDArray[np.float64] = colour * (1 - mask) + brown * mask
    return blended


def _ground(side: int, intra: float, rng: np.random.Generator) -> NDArray[np.float64]:
    tone = np.array([0.40, 0.34, 0.27]) * (1 + intra * 0.22 * rng.normal()) + intra * 0.025 * rng.normal(size=3)
    grain = 0.10 * _noise(side, 6, rng) + 0.07 * _noise(side, 24, rng)
    ground: NDArray[np.float64] = (tone * (1 + grain[..., None])).clip(0.03, 1)
    return ground


def _slope(side: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A linear ramp from -1 to 1 in a random direction."""
    y, x = np.mgrid[0:side, 0:side] / side * 2 - 1
    angle = rng.uniform(0, 2 * np.pi)
    ramp: NDArray[np.float64] = x * np.cos(angle) + y * np.sin(angle)
    return ramp


def _noise(side: int, cells: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Smooth noise with a standard deviation of about 1 and `cells` bumps along a side."""
    coarse = rng.normal(size=(cells + 2, cells + 2))
    at = np.linspace(0, cells, side)
    low = at.astype(int)
    part = at - low
    part = part * part * (3 - 2 * part)
    rows = coarse[low] * (1 - part)[:, None] + coarse[low + 1] * part[:, None]
    bumps: NDArray[np.float64] = rows[:, low] * (1 - part) + rows[:, low + 1] * part
    return bumps


def _smooth(values: NDArray[np.float32], radius: int) -> NDArray[np.float64]:
    """Box blur by cumulative sums, twice."""
    result = values.astype(np.float64)
    for _ in range(2):
        for axis in (0, 1):
            total = np.cumsum(np.concatenate([result, result], axis), axis)
            n = result.shape[axis]
            ends = np.take(total, range(n, 2 * n), axis)
            starts = np.take(total, range(n - 2 * radius - 1, 2 * n - 2 * radius - 1), axis)
            result = np.roll((ends - starts) / (2 * radius + 1), -radius, axis)
    return result


def _hsv_to_rgb(
    hue: NDArray[np.float64], saturation: NDArray[np.float64], value: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Standard HSV to RGB with each channel as a function of hue: v - v s max(0, min(k, 4 - k, 1))."""
    k = (np.array([5.0, 3.0, 1.0]) + hue[..., None] * 6) % 6
    fall = np.minimum(np.minimum(k, 4 - k), 1).clip(0)
    colour: NDArray[np.float64] = value[..., None] * (1 - saturation[..., None] * fall)
    return colour
