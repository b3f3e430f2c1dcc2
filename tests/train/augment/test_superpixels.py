from __future__ import annotations

import pytest
import torch

from calibrant.train.augment.superpixels import salient_mask, superpixels


def _two_colours() -> torch.Tensor:
    """A disc on a ground, (1, 3, 64, 64), and where the disc is."""
    y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    disc = (y - 30) ** 2 + (x - 34) ** 2 < 18**2
    return torch.where(disc, 1.5, -1.0).expand(1, 3, 64, 64)


def test_regions_follow_the_contour() -> None:
    """An even grid of 40 squares cuts through the disc; superpixels hold one colour each."""
    image = _two_colours()
    label = superpixels(image, 40)
    straddling = sum(bool(image[0, 0][label[0] == k].std() > 0) for k in label[0].unique() if (label == k).sum() > 1)
    assert straddling == 0
    assert 30 <= len(label[0].unique()) <= 48


def test_every_iteration_brings_the_colours_of_a_region_together() -> None:
    x = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    image = torch.nn.functional.interpolate(x, (64, 64), mode="bicubic").expand(1, 3, 64, 64)

    def spread(iterations: int) -> float:
        label = superpixels(image, 25, iterations=iterations)[0]
        return sum(float(image[0, 0][label == k].var(correction=0) * (label == k).sum()) for k in label.unique())

    found = [spread(n) for n in (0, 1, 5)]
    assert found == sorted(found, reverse=True)
    assert found[2] < 0.8 * found[0]


@pytest.mark.parametrize("count", [2, 9, 30, 50])
def test_regions_of_an_even_image_are_as_many_as_asked_and_of_like_size(count: int) -> None:
    label = superpixels(torch.zeros(1, 3, 60, 60), count)
    sizes = torch.bincount(label.flatten())
    assert abs(len(sizes) - count) <= max(1, count // 5)
    assert sizes.max() <= 3 * sizes.min() + 60


def test_regions_do_not_depend_on_the_other_images() -> None:
    x = torch.randn(5, 3, 48, 64, generator=torch.Generator().manual_seed(1))
    together = superpixels(x, 20)
    assert torch.equal(together[3:4], superpixels(x[3:4], 20))
    assert together.shape == (5, 48, 64)


def test_the_regions_with_the_largest_mean_are_kept() -> None:
    """Four quarters; saliency 3, 1, 4, 2 in them."""
    label = torch.tensor([[0, 1], [2, 3]]).repeat_interleave(4, 0).repeat_interleave(4, 1)[None]
    maps = torch.tensor([[3.0, 1.0], [4.0, 2.0]]).repeat_interleave(4, 0).repeat_interleave(4, 1)[None]
    mask = salient_mask(label, maps, 2, (16, 16))
    expected = torch.zeros(16, 16, dtype=torch.bool)
    expected[:, :8] = True
    assert torch.equal(mask[0], expected)


def test_an_empty_region_is_never_kept_and_takes_no_place() -> None:
    label = torch.tensor([[[0, 0], [2, 2]], [[1, 1], [2, 2]]])  # each image lacks one region
    maps = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]]).expand(2, 2, 2)
    assert salient_mask(label, maps, 1, (2, 2)).float().mean((1, 2)).tolist() == [0.5, 0.5]
    assert salient_mask(label, maps, 2, (2, 2)).all()
