from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrant.train.augment.mix import mix, mix_donors
from calibrant.train.config import AugmentConfig
from calibrant.train.losses import LOSSES, create_loss
from calibrant.train.losses.shared.target import MixedTarget
from calibrant.train.seeds import generator


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Image i is i everywhere: a mixed pixel tells from where it came."""
    return torch.arange(6.0)[:, None, None, None].expand(6, 3, 10, 10).clone(), torch.arange(6)


def test_mixup_blends_images_as_it_blends_labels() -> None:
    x, y = _batch()
    mixed, target = mix(x, y, AugmentConfig(mixup=1.0), generator(1))
    assert isinstance(target, MixedTarget)
    expected = target.lam * target.y1 + (1 - target.lam) * target.y2
    torch.testing.assert_close(mixed[:, 1, 4, 7], expected.float())
    assert torch.equal(x, _batch()[0])  # the batch itself is left alone


def test_cutmix_shares_are_those_of_the_pixels() -> None:
    x, y = _batch()
    boxes = 0
    for seed in range(20):
        mixed, target = mix(x, y, AugmentConfig(cutmix=1.0), generator(seed))
        assert isinstance(target, MixedTarget)
        for i in range(6):
            own = float((mixed[i, 0] == i).float().mean())
            if target.y2[i] != i:
                np.testing.assert_allclose(own, target.lam, atol=1e-6)
                boxes += own < 1
    assert boxes > 20


def test_the_probability_is_that_of_batches_and_both_kinds_occur() -> None:
    x, y = _batch()
    config = AugmentConfig(mixup=0.2, cutmix=1.0, mix_prob=0.5)
    kinds = []
    for seed in range(200):
        mixed, target = mix(x, y, config, generator("mix", seed))
        if not isinstance(target, MixedTarget):
            kinds.append("none")
        else:
            whole = bool((mixed == mixed.round()).all())
            kinds.append("cutmix" if whole else "mixup")
    assert 75 < kinds.count("none") < 125
    assert kinds.count("mixup") > 25
    assert kinds.count("cutmix") > 25


def _bright(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return images.mean(1)


def _textured(n: int = 6) -> torch.Tensor:
    """Image i carries the numbers [i, i + 1) in 8 x 8 blocks of its own, so a pixel tells from where it came."""
    blocks = torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 0.99
    x = torch.arange(n).reshape(n, 1, 1, 1) + blocks.repeat_interleave(8, 2).repeat_interleave(8, 3)
    return x.expand(n, 3, 32, 32).contiguous()


def test_superpixel_shares_are_those_of_the_pixels_and_pixels_keep_their_place() -> None:
    x, y = _textured(), torch.arange(6)
    kept = x.clone()
    for seed in range(10):
        mixed, target = mix(x, y, AugmentConfig(superpixel_mix=3), generator(seed), _bright)
        assert isinstance(target, MixedTarget)
        lam = torch.as_tensor(target.lam)
        for i in range(6):
            theirs = mixed[i, 0].floor() == target.y2[i]
            assert torch.equal(mixed[i][:, theirs], x[target.y2[i]][:, theirs])
            assert torch.equal(mixed[i][:, ~theirs], x[i][:, ~theirs])
            if target.y2[i] != i:
                np.testing.assert_allclose(float(theirs.float().mean()), 1 - lam[i], atol=1e-6)
                assert 0 < lam[i] < 1
    assert torch.equal(x, kept)


def test_the_superpixels_that_are_pasted_are_the_salient_ones() -> None:
    x = _textured()
    mixed, target = mix(x, torch.arange(6), AugmentConfig(superpixel_mix=3), generator(3), _bright)
    assert isinstance(target, MixedTarget)
    for i in range(6):
        theirs = mixed[i, 0].floor() == target.y2[i]
        if target.y2[i] != i:
            image = x[target.y2[i], 0]
            assert image[theirs].mean() > image[~theirs].mean() + 0.1


def test_three_kinds_share_the_batches() -> None:
    x, y = _textured(), torch.arange(6)
    config = AugmentConfig(mixup=0.2, cutmix=1.0, superpixel_mix=2)
    vectors = sum(
        isinstance(target, MixedTarget) and isinstance(target.lam, torch.Tensor)
        for target in (mix(x, y, config, generator("mix", seed), _bright)[1] for seed in range(150))
    )
    assert 30 < vectors < 70


def test_donors_reach_their_rows_and_no_others() -> None:
    x, y = _textured(), torch.tensor([0, 1, 0, -100, 1, 0])
    donors, rows = _textured()[:2] + 10, torch.tensor([4, 0])
    config = AugmentConfig(transplant=1.0, transplant_area=(0.25, 0.25))
    mixed, target = mix_donors(x, y, donors, torch.tensor([2, 3]), rows, config, generator(1), _bright)
    assert target.y1.tolist() == y.tolist()
    assert target.y2.tolist() == [3, 1, 0, -100, 2, 0]
    assert torch.as_tensor(target.lam).tolist() == [0.75, 1, 1, 1, 0.75, 1]
    assert torch.equal(mixed[[1, 2, 3, 5]], x[[1, 2, 3, 5]])
    assert [int((mixed[r, 0] >= 10).sum()) for r in range(6)] == [256, 0, 0, 0, 256, 0]
    assert mixed[4].max() < 11 <= mixed[0].max()


@pytest.mark.parametrize("name", [n for n, cls in LOSSES.items() if cls.trains_classifier])
def test_every_loss_takes_a_share_for_each_row(name: str) -> None:
    """A row of share 1 is a hard label, and half of two equal labels is that label."""
    torch.manual_seed(0)
    z, f = torch.randn(6, 4).tanh(), torch.randn(6, 5)
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    made = [create_loss(name, num_classes=4, feature_dim=5, class_counts=[9, 5, 3, 2], reduction="none").eval()]
    made.append(create_loss(name, num_classes=4, feature_dim=5, class_counts=[9, 5, 3, 2], reduction="none").eval())
    made[1].load_state_dict(made[0].state_dict())
    lam = torch.tensor([1.0, 0.5, 0.25, 1.0, 0.0, 0.7], dtype=torch.float64)
    y2 = torch.where(lam == 1, y.roll(1), y)
    hard = made[0](z, y, f, torch.arange(6))
    mixed = made[1](z, MixedTarget(y, y2, lam), f, torch.arange(6))
    torch.testing.assert_close(mixed, hard, rtol=1e-5, atol=1e-6)
