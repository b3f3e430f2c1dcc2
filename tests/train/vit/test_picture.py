"""The picture of what was kept, against what each method does by definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.errors import CalibrantError
from calibrant.train.vit import METHODS, reduce_tokens
from calibrant.train.vit.picture import DROPPED, KeptStage, draw, kept

Make = Callable[..., Any]
MERGING = ("tome", "patchmerger", "sit", "dpcknn")


def images() -> torch.Tensor:
    return torch.randn(2, 3, 40, 56, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("clca", [0, 1], ids=["base", "clca"])
@pytest.mark.parametrize("method", [m for m in METHODS if m != "none"])
def test_patches_are_followed_through_all_stages(make_backbone: Make, method: str, clca: int) -> None:
    torch.manual_seed(1)  # EViT keeps the fused token of its first stage with these weights
    vit = make_backbone(img_size=(40, 56), depth=6)  # 5 x 7 patches
    model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1, 3), cache_tokens=clca).train()
    for first, second in kept(model, images()):
        assert model.training
        assert first.token.shape == (5, 7)
        assert (first.block, second.block) == (1, 3)
        if method in MERGING:
            assert first.survives.all()
            assert second.survives.all()
            assert second.tokens <= first.tokens < 35
        else:
            assert not (second.survives & ~first.survives).any()  # what is gone stays gone
            assert second.survives.sum() < first.survives.sum() <= 18  # ceil or floor of 35 / 2
        for stage in (first, second):
            alone = stage.token[stage.survives]
            assert len(np.unique(alone)) == (len(alone) if method not in MERGING else stage.tokens)


def test_topk_shows_the_patches_with_most_attention(make_backbone: Make) -> None:
    model = reduce_tokens(make_backbone(img_size=(40, 56), depth=3), "topk", keep_rate=0.2, locations=(1,)).eval()
    x = images()[:1]
    with torch.no_grad():
        t = model.blocks[0](model._vit._pos_embed(model.patch_embed(x)))
        attn = model.blocks[1].attn
        q, k, _ = attn.qkv(model.blocks[1].norm1(t)).reshape(1, 36, 3, 3, 16).permute(2, 0, 3, 1, 4)
        a = (q[:, :, :1] @ k.transpose(2, 3) / 4.0).softmax(-1).mean(1)[0, 0, 1:]
    expected = np.zeros(35, bool)
    expected[a.topk(7).indices.numpy()] = True
    stage = kept(model, x)[0][0]
    np.testing.assert_array_equal(stage.survives, expected.reshape(5, 7))


def test_drawing_dims_what_was_dropped_and_averages_what_was_merged() -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    image[:2] = 200
    dropped = KeptStage(3, np.array([[1, 2], [DROPPED, DROPPED]]), 2)
    strip = draw(image, [dropped], merged=False)
    assert strip.shape == (4, 12, 3)
    assert (strip[:2, 8:] == 200).all()
    assert (strip[2:, 8:] == 150).all()
    merged = draw(image, [KeptStage(3, np.ones((2, 2), np.int64), 1)], merged=True)
    assert (merged[:2, 8:] == 125).all()  # a quarter of 200, three quarters of 100
    assert (merged[2:, 8:] == 75).all()


def test_network_that_drops_nothing_has_no_picture(make_backbone: Make) -> None:
    model = reduce_tokens(make_backbone(img_size=(40, 56)), "none", keep_rate=1.0)
    with pytest.raises(CalibrantError, match="reduces no tokens"):
        kept(model, images())
