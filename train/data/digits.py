"""scikit-learn's 1,797 handwritten digits as colour images: the quick second data set of the demo.

The 8 x 8 scans are enlarged to `size` and given two random colours each, so that a network must look at the shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError
from calibrant.progress import progress


@dataclass(frozen=True)
class DigitSpec:
    size: int = 32
    imbalance: float = 10.0  # most frequent class over rarest, in the training and validation sets
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 8 or self.imbalance < 1:
            raise ConfigError("size must be at least 8 and imbalance at least 1", where="digits")


def write_digits(out: str | Path, spec: DigitSpec) -> Path:
    """Writes `out/{train,val,test}/D/NNNN.png` (half, a quarter, a quarter of every class, then thinned)."""
    from PIL import Image
    from sklearn.datasets import load_digits

    out = Path(out)
    scans, labels = load_digits(return_X_y=True)
    jobs = [
        (split, digit, index)
        for digit in range(10)
        for split, indices in _split(np.flatnonzero(labels == digit), digit, spec).items()
        for index in indices
    ]
    for split, digit, index in progress(jobs, what="writing digits", unit="img"):
        picture = _coloured(scans[index].reshape(8, 8) / 16.0, spec, np.random.default_rng([spec.seed, 1, index]))
        path = out / split / str(digit) / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path, compress_level=1)
    return out


def _split(indices: NDArray[np.intp], digit: int, spec: DigitSpec) -> dict[str, list[int]]:
    order = np.random.default_rng([spec.seed, 0, digit]).permutation(indices)
    half, quarter = len(order) // 2, len(order) // 4
    share = spec.imbalance ** (-digit / 9)
    return {
        "train": order[: max(2, round(half * share))].tolist(),
        "val": order[half : half + max(2, round(quarter * share))].tolist(),
        "test": order[half + quarter :].tolist(),  # not thinned: nearly balanced
    }


def _coloured(ink: NDArray[np.float64], spec: DigitSpec, rng: np.random.Generator) -> NDArray[np.uint8]:
    from PIL import Image

    large = Image.fromarray((255 * ink).astype(np.uint8)).resize((spec.size, spec.size), Image.Resampling.BICUBIC)
    amount = np.asarray(large, np.float64)[..., None] / 255
    paper, pen = rng.uniform(0.0, 0.45, 3), rng.uniform(0.55, 1.0, 3)
    if rng.random() < 0.5:
        paper, pen = pen, paper
    picture = paper * (1 - amount) + pen * amount + 0.04 * rng.normal(size=(spec.size, spec.size, 3))
    return (255 * picture.clip(0, 1) + 0.5).astype(np.uint8)
