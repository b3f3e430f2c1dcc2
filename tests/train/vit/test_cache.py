"""The cross-layer cache against the same steps written out one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from calibrant.train.vit import reduce_tokens
from calibrant.train.vit.deploy import for_export


def written_out(vit: Any, images: Tensor, recovery: tuple[int, ...], clr: Tensor | None, pool: bool) -> Tensor:
    """Logits of a network that reduces nothing and caches; spec/clca.md 3, step by step."""
    x = vit.norm_pre(vit._pos_embed(vit.patch_embed(images)))
    m, held = x.shape[1], []
    if clr is not None:
        x = torch.cat([x, clr.expand(len(x), -1, -1)], 1)
    for i, block in enumerate(vit.blocks):
        x = block(x)
        if i in recovery:
            m = x.shape[1]
            x, held = torch.cat([x, *held], 1), []
        if i < max(recovery):
            if pool:
                held.append(x[:, 1:m].mean(1, keepdim=True))
            if clr is not None:
                held.append(x[:, -clr.shape[1] :])
    return vit.forward_head(vit.norm(x))


@pytest.mark.parametrize(("tokens", "pool"), [(0, True), (1, True), (2, False)], ids=["pool", "both", "tokens"])
def test_logits_are_those_of_the_steps(make_backbone: Callable[..., Any], tokens: int, pool: bool) -> None:
    images = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(3))
    vit = make_backbone(img_size=56, depth=6)
    model = reduce_tokens(
        vit, "none", keep_rate=1.0, locations=(1, 3), cache_tokens=tokens, cache_pool=pool
    ).eval()  # fmt: skip
    clr = model.clc.clr + model.clc.clr_pos if tokens else None
    with torch.no_grad():
        expected = written_out(model._vit, images, (1, 3, 4), clr, pool)
        torch.testing.assert_close(model(images), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(for_export(model)(images), expected, rtol=0, atol=1e-5)
        _, left = model.tokens(images)
    each = tokens + int(pool)
    assert left.x.shape[1] == 50 + tokens + 4 * each  # after blocks 0 to 3, read back after 1, 3 and 4


def test_means_alone_change_the_network_and_add_no_parameter(make_backbone: Callable[..., Any]) -> None:
    images = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(3))
    logits, names = [], []
    for pool in (None, True):
        torch.manual_seed(0)
        vit = make_backbone(img_size=56, depth=6)
        model = reduce_tokens(vit, "evit", keep_rate=0.5, locations=(1, 3), cache_pool=pool).eval()
        names.append(set(model.state_dict()))
        with torch.no_grad():
            logits.append(model(images))
    assert names[0] == names[1]
    assert (logits[0] - logits[1]).abs().max() > 1e-4
