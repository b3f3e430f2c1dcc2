from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrant.train.augment.transplant import transplant
from calibrant.train.seeds import generator


def _spots(where: list[tuple[int, int]]) -> Tensor:
    """(N, 64, 64) maps with one bright square of 16 px each."""
    maps = torch.zeros(len(where), 64, 64)
    for one, (y, x) in zip(maps, where, strict=True):
        one[y : y + 16, x : x + 16] = 1
    return maps


def test_the_salient_patch_of_the_donor_lands_where_the_image_says_nothing() -> None:
    """A sixteenth: the donor's bright square replaces the image's dark one."""
    x, donors = torch.full((1, 3, 64, 64), -1.0), torch.arange(4096.0).reshape(1, 1, 64, 64).expand(1, 3, 64, 64)
    theirs, own = _spots([(32, 16)]), 1 - _spots([(0, 48)])

    def saliency(images: Tensor, labels: Tensor) -> Tensor:
        return own if int(labels[0]) == 0 else theirs

    mixed, left = transplant(x, donors, saliency, torch.tensor([0]), torch.tensor([1]), (1 / 16, 1 / 16), generator(1))
    assert torch.equal(mixed[0, :, :16, 48:], donors[0, :, 32:48, 16:32])
    outside = mixed.clone()
    outside[0, :, :16, 48:] = -1
    assert torch.equal(outside, x)
    assert left.tolist() == [1 - 1 / 16]


def test_the_share_that_is_left_is_that_of_the_pixels() -> None:
    n = 40
    x, donors = torch.zeros(n, 3, 50, 70), torch.ones(n, 3, 50, 70)
    rng = np.random.default_rng(0)
    maps = torch.from_numpy(rng.random((n, 7, 7)))
    mixed, left = transplant(x, donors, lambda images, labels: maps, torch.zeros(n), torch.zeros(n), (0.1, 0.3), rng)
    np.testing.assert_allclose((mixed == 0).double().mean((1, 2, 3)), left, atol=1e-12)
    assert 0.65 < left.min() < 0.75  # sides are whole cells of a grid of 32
    assert 0.85 < left.max() < 0.95
    assert torch.equal(x, torch.zeros_like(x))  # the batch itself is left alone


@pytest.mark.parametrize("area", [0.001, 1.0])
def test_the_smallest_and_the_largest_patch_exist(area: float) -> None:
    x, donors = torch.zeros(1, 3, 20, 20), torch.ones(1, 3, 20, 20)
    mixed, left = transplant(
        x, donors, lambda images, labels: torch.rand(1, 3, 3), torch.zeros(1), torch.zeros(1), (area, area),
        generator(0),
    )  # fmt: skip
    assert float(mixed.mean()) == pytest.approx(1 - float(left))
    assert math.isclose(float(left), 0.0 if area == 1 else 1 - 1 / 400)
