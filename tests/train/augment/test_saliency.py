from __future__ import annotations

import pytest
import torch
from torch import nn

from calibrant.errors import ModelError
from calibrant.train.augment.saliency import class_map, shrink, spectral_residual, unit_maps
from calibrant.train.model.feature_model import build_model


def test_the_mean_of_a_class_map_is_the_logit_where_the_head_is_linear() -> None:
    """Zhou et al. 2016: pooling and a linear map change places."""
    model = build_model("test_resnet", 5, input_size=(64, 64)).eval()
    nn.init.normal_(model.classifier_layers()[0].weight)  # type: ignore[arg-type]
    x, y = torch.randn(3, 3, 64, 64), torch.tensor([4, 0, 2])
    maps = class_map(model)(x, y)
    assert maps.shape == (3, 2, 2)
    with torch.no_grad():
        logits, _ = model(x)
    torch.testing.assert_close(maps.mean((1, 2)), logits.gather(1, y[:, None])[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "grid"),
    [("test_vit", 32, (2, 2)), ("test_convnext", 64, (2, 2)), ("swin_tiny_patch4_window7_224", 224, (7, 7)),
     ("deit_tiny_distilled_patch16_224", 32, (2, 2)), ("dla46_c", 64, (2, 2)),
     ("levit_128", 224, (4, 4))],
)  # fmt: skip
def test_feature_maps_tokens_and_odd_heads_have_maps_that_follow_the_label(
    name: str, size: int, grid: tuple[int, int]
) -> None:
    model = build_model(name, 3, input_size=(size, size))
    for layer in model.classifier_layers():
        for p in layer.parameters():
            nn.init.normal_(p)
    maps = class_map(model)
    x = torch.randn(2, 3, size, size)
    a, b = maps(x, torch.tensor([0, 0])), maps(x, torch.tensor([1, -100]))
    assert tuple(a.shape[1:]) == grid
    assert not torch.allclose(a[0], b[0])
    torch.testing.assert_close(a[1], b[1])  # a row that no loss sees gets the map of some class


def test_a_class_map_leaves_batch_statistics_mode_and_random_numbers_alone() -> None:
    model = build_model("test_resnet", 4, input_size=(32, 32), drop_rate=0.5).train()
    maps = class_map(model)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = maps(torch.ones(2, 3, 32, 32), torch.tensor([0, 1]))
    assert torch.equal(torch.rand(2), expected)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(first, maps(torch.ones(2, 3, 32, 32), torch.tensor([0, 1])))  # no dropout in it


def test_a_network_without_positions_is_refused_and_told_what_to_do() -> None:
    model = build_model("crossvit_tiny_240", 3, input_size=(240, 240))
    with pytest.raises(ModelError, match='saliency = "spectral"'):
        class_map(model)


def test_a_spot_on_an_even_pattern_is_where_the_residual_is_largest() -> None:
    wave = 4 * torch.sin(torch.arange(64) * 0.8)[:, None] + 4 * torch.sin(torch.arange(64) * 0.5)
    x = (wave * torch.linspace(1.5, 1.0, 64)[:, None]).expand(2, 3, 64, 64).clone()  # brightest at the top
    x[0, :, 40:48, 10:18] += torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    x[1, :, 5:13, 50:58] += torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    maps = spectral_residual(x)
    for one, (row, column) in zip(maps, ((44, 14), (9, 54)), strict=True):
        at = int(one.argmax())
        assert abs(at // 64 - row) < 7
        assert abs(at % 64 - column) < 7


def test_maps_are_brought_to_zero_and_one_and_a_flat_one_to_zero() -> None:
    maps = unit_maps(torch.stack([torch.arange(4.0).reshape(2, 2) * 7 - 3, torch.full((2, 2), 5.0)]), (2, 2))
    torch.testing.assert_close(maps[0], torch.arange(4.0).reshape(2, 2) / 3)
    assert torch.equal(maps[1], torch.zeros(2, 2))


def test_shrinking_averages_whole_blocks() -> None:
    x = torch.randn(1, 3, 224, 224)
    small = shrink(x, 64)
    assert small.shape == (1, 3, 56, 56)
    torch.testing.assert_close(small[0, 1, 2, 3], x[0, 1, 8:12, 12:16].mean())
    assert shrink(x[..., :32, :32], 64).shape == (1, 3, 32, 32)
