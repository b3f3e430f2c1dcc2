from __future__ import annotations

import numpy as np
import torch

from calibrant.train.config import AugmentConfig
from calibrant.train.losses.base import MixedTarget
from calibrant.train.mix import mix
from calibrant.train.random import generator


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
