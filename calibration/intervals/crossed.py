"""The interval of a difference that was seen with several seeds on the same images: two noises at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CrossedMean:
    """low, high and p are None where nothing can be told: one image, or no difference in any row."""

    mean: float
    low: float | None
    high: float | None
    p: float | None  # two-sided, of mean 0


def crossed_mean(d: NDArray[np.float64]) -> CrossedMean:
    """95 % interval of the mean of d (S seeds, n images), both being samples of what could have been drawn.

    v_s = var of seed means / S, v_i = var of image means / n, v_r = mean square of the residuals / (S n);
    v = max(v_s + v_i - v_r, v_s, v_i), degrees of freedom by Satterthwaite; mean +- t sqrt(v). One seed, or seeds that
    all give the same, leave the images' own interval. Variance components of the crossed two-way layout (Searle 1971).
    With two or three seeds and few images it covers .86 where seeds differ much (tests/.../test_crossed.py).
    """
    seeds, images = d.shape
    mean = float(d.mean())
    if images < 2 or not d.any():
        return CrossedMean(mean, None, None, None)
    by_seed, by_image = d.mean(1), d.mean(0)
    v_i = float(by_image.var(ddof=1)) / images
    v_s = v_r = 0.0
    if seeds > 1:
        v_s = float(by_seed.var(ddof=1)) / seeds
        rest = d - by_seed[:, None] - by_image[None, :] + mean
        v_r = float((rest**2).sum()) / ((seeds - 1) * (images - 1)) / (seeds * images)
    v = max(v_s + v_i - v_r, v_s, v_i)
    if v <= 1e-24 * max(1.0, mean * mean):  # the same difference in every row of every seed: no noise to judge it by
        return CrossedMean(mean, None, None, None)
    spread = v_i**2 / (images - 1)
    if seeds > 1:
        spread += v_s**2 / (seeds - 1) + v_r**2 / ((seeds - 1) * (images - 1))
    freedom = v * v / spread
    from scipy.special import stdtr, stdtrit  # scipy.stats costs 70 MB

    half = float(stdtrit(freedom, 0.975)) * v**0.5
    return CrossedMean(mean, mean - half, mean + half, float(2 * stdtr(freedom, -abs(mean) / v**0.5)))
