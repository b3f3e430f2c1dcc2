"""What a reduced network promises beyond the reference: refusals, finite edge cases, batches, training tools."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from calibrant.errors import CalibrantError
from calibrant.train.vit import METHODS, TokenReduction, reduce_tokens
from calibrant.train.vit.tokens import Tokens

REDUCING = [m for m in METHODS if m != "none"]
Make = Callable[..., Any]


def small(make_backbone: Make, **options: Any) -> Any:
    """A quick network: 49 patches, 6 blocks."""
    return make_backbone(**{"img_size": 56, "depth": 6, **options})


def picture(batch: int = 2, size: int = 56) -> Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("clca", [False, True], ids=["base", "clca"])
@pytest.mark.parametrize("method", REDUCING)
def test_every_stage_keeps_a_token_and_a_batch_equals_its_rows(make_backbone: Make, method: str, clca: bool) -> None:
    vit = small(make_backbone)
    model = reduce_tokens(vit, method, keep_rate=0.02, locations=(1, 2, 4), cla=clca, cache_tokens=int(clca)).eval()
    images = picture(4)
    with torch.no_grad():
        together = model(images)
        alone = torch.cat([model(images[i : i + 1]) for i in range(4)])
        _, t = model.tokens(images)
    assert together.isfinite().all()
    assert t.count >= 1
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", REDUCING)
def test_classifier_of_features_is_the_forward_pass(make_backbone: Make, method: str) -> None:
    for cla in (False, "cla", "ifa"):
        vit = small(make_backbone)
        model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1, 3), cla=cla, cache_tokens=1).eval()
        with torch.no_grad():
            features = model.forward_head(model.forward_features(picture()), pre_logits=True)
            torch.testing.assert_close(model.get_classifier()(features), model(picture()), rtol=0, atol=0)
        assert features.shape == (2, model.head_hidden_size)
        model.reset_classifier(3)
        assert model.num_classes == 3
        assert model(picture()).shape == (2, 3)


@pytest.mark.parametrize("method", REDUCING)
def test_all_parameters_get_a_gradient(make_backbone: Make, method: str) -> None:
    vit = small(make_backbone, drop_path_rate=0.0)
    model = reduce_tokens(vit, method, keep_rate=0.6, locations=(1, 3), cla=True, cache_tokens=2).train()
    loss = model(picture(4)).square().mean()
    auxiliary = model.auxiliary_loss()
    (loss if auxiliary is None else loss + auxiliary).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # A key bias shifts all logits of a row alike: softmax takes it away, so that third of qkv.bias is rightly 0.
    assert without == []
    assert (auxiliary is not None) == (method == "dynamicvit")
    names = [n for n in model.state_dict() if n.startswith(("norm.", "head.", "fc_norm."))]
    assert names == []


@pytest.mark.parametrize("method", REDUCING)
def test_gradient_checkpointing_changes_no_gradient(make_backbone: Make, method: str) -> None:
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        vit = small(make_backbone, drop_path_rate=0.2)
        model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1, 3), cla=True, cache_tokens=1).train()
        model.set_grad_checkpointing(checkpointing)
        torch.manual_seed(1)
        loss = model(picture()).square().sum()
        auxiliary = model.auxiliary_loss()
        (loss if auxiliary is None else loss + auxiliary).backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    for name, value in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("method", REDUCING)
def test_compiled_without_graph_breaks_gives_the_same_logits(make_backbone: Make, method: str) -> None:
    vit = small(make_backbone, depth=3)
    model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1,), cla=True, cache_tokens=1).eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(picture()), model(picture()), rtol=0, atol=1e-6)
    torch._dynamo.reset()


@pytest.mark.parametrize("method", REDUCING)
def test_bfloat16_autocast_trains(make_backbone: Make, method: str) -> None:
    vit = small(make_backbone)
    model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1, 3), cla=True, cache_tokens=1).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(picture())
    logits.float().square().mean().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_deep_copy_is_independent(make_backbone: Make) -> None:
    model = reduce_tokens(small(make_backbone), "evit", keep_rate=0.5, locations=(1, 3)).eval()
    other = copy.deepcopy(model)
    before = model(picture())
    with torch.no_grad():
        other.blocks[0].mlp.fc1.weight.zero_()
        other.pos_embed.zero_()
    torch.testing.assert_close(model(picture()), before, rtol=0, atol=0)
    assert not torch.allclose(other(picture()), before)


def test_network_can_be_copied_between_two_training_steps(make_backbone: Make) -> None:
    model = reduce_tokens(small(make_backbone), "dynamicvit", keep_rate=0.5, locations=(1, 3)).train()
    model(picture())
    other = copy.deepcopy(model)
    assert model.auxiliary_loss() is not None
    assert other.auxiliary_loss() is None
    other.cls_token.data.add_(1.0)
    assert other._vit.cls_token is other.cls_token
    assert not torch.equal(model.cls_token, other.cls_token)


def test_mode_reaches_the_object_that_lends_its_methods(make_backbone: Make) -> None:
    model = reduce_tokens(small(make_backbone), "evit", keep_rate=0.5, locations=(1, 3)).eval()
    assert not model._vit.training
    assert model.train()._vit.training


def test_different_rates_per_stage_and_a_stage_that_keeps_all(make_backbone: Make) -> None:
    vit = small(make_backbone)
    model = reduce_tokens(vit, "sit", keep_rate=(1.0, 0.5, 0.25), locations=(1, 2, 4)).eval()
    counts = []
    model.tokens(picture(), lambda event, i, t: counts.append(t.count) if event == "out" else None)
    assert counts == [49, 49, 24, 24, 6, 6]  # floor(49 * 0.5), floor(49 * 0.125)
    assert [n for n in model.state_dict() if n.startswith("sit.0")] == []


def test_another_image_size_and_a_rectangle(make_backbone: Make) -> None:
    vit = small(make_backbone)
    model = reduce_tokens(vit, "evit", keep_rate=0.5, locations=(1, 3), cache_tokens=1).eval()
    model.set_input_size((40, 64))
    assert model(torch.randn(2, 3, 40, 64)).shape == (2, 10)
    with pytest.raises(CalibrantError, match="40 x 60 is not divisible by the patch size 8 x 8"):
        model(torch.randn(2, 3, 40, 60))
    with pytest.raises(CalibrantError, match="built for 40 x 64"):
        model(torch.randn(2, 3, 64, 64))


def test_cache_starts_from_the_class_token_and_is_not_decayed(make_backbone: Make) -> None:
    model = reduce_tokens(small(make_backbone), "evit", keep_rate=0.5, locations=(1, 3), cache_tokens=2)
    assert torch.equal(model.clc.clr[0, 1], model.cls_token[0, 0])
    assert model.no_weight_decay() >= {"clc.clr", "clc.clr_pos", "cls_token", "pos_embed"}
    bare = reduce_tokens(
        small(make_backbone, no_embed_class=True), "evit", keep_rate=0.5, locations=(1,), cache_tokens=1
    )
    assert "clc.clr_pos" not in bare.state_dict()


@pytest.mark.parametrize("name", ["vit_small_patch16_dinov3", "vit_small_patch16_rope_mixed_224"])
def test_rotary_positions_stay_with_their_tokens(name: str) -> None:
    """The order of tokens means nothing to a transformer whose tokens bring their own rotation.

    A stage that keeps all tokens but sorts them by attention must give the class token of the untouched network.
    """
    options = {"img_size": 112, "embed_dim": 48, "num_heads": 3, "depth": 4, "global_pool": "token"}
    vit = timm.create_model(name, num_classes=5, **options).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in vit.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.1)
    x = picture(2, 112)
    with torch.no_grad():
        expected = vit(x)
    model = reduce_tokens(vit, "topk", keep_rate=0.99, locations=(1,)).eval()
    stage, order = model.topk[0], []

    def shuffle(layer: Any, t: Tokens, patches: int) -> Tokens:
        index = torch.randperm(t.count, generator=generator)[None].expand(2, -1) + t.prefix
        order.append(index)
        return layer.whole(t.take(index))

    stage.forward = shuffle
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-5)
        stage.forward = lambda layer, t, patches: layer.whole(t.with_x(t.take(order[0]).x))  # rotations left behind
        assert (model(x) - expected).abs().max() > 1e-3


def test_fused_token_is_not_rotated() -> None:
    rope = torch.randn(1, 1, 1, 4, 6)
    t = Tokens(torch.randn(2, 6, 8), 2, rope=rope).append(torch.zeros(2, 1, 8))
    assert t.rope is not None
    assert t.rope[0, 0, 0, 4].tolist() == [0.0] * 3 + [1.0] * 3  # sin 0, cos 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep_rate": 0.0}, r"keep rate 0 is not in \(0, 1\]"),
        ({"keep_rate": 1.5}, r"keep rate 1.5 is not in \(0, 1\]"),
        ({"keep_rate": float("nan")}, r"keep rate nan is not in \(0, 1\]"),
        ({"keep_rate": (0.5, 0.5)}, "2 keep rates were given for 3 locations"),
        (
            {"locations": (3, 6, 12)},
            r"model\.token_reduction\.locations: location 12 is outside the network, which has blocks 0 to 11"
            r"[\s\S]*\[3, 6, 9\]",
        ),
        ({"locations": (6, 3)}, "rising order"),
        ({"locations": (-1, 3)}, "rising order"),
        ({"locations": ()}, "rising order"),
        ({"method": "evitt"}, 'did you mean "evit"'),
        ({"cla": "clla"}, 'no head is called "clla"'),
        ({"cache_tokens": -1}, "cache_tokens is -1"),
        ({"method": "none"}, 'method is "none"'),
    ],
)
def test_bad_settings_are_refused_in_one_line(make_backbone: Make, options: dict[str, Any], words: str) -> None:
    settings = {"method": "evit", "keep_rate": 0.5, **options}
    with pytest.raises(CalibrantError, match=words) as caught:
        reduce_tokens(make_backbone(), settings.pop("method"), **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda make: timm.create_model("resnet18"), "ResNet is not a plain vision transformer"),
        (lambda make: make(class_token=False, global_pool="avg"), "no class token"),
        (lambda make: make(img_size=60), "image size 60 x 60 is not divisible by the patch size 8 x 8"),
        (lambda make: make(patch_drop_rate=0.1), "patch dropout"),
        (lambda make: timm.create_model("deit_tiny_distilled_patch16_224"), "two class tokens"),
        (lambda make: make(global_pool="avg"), "'avg' pooling would count"),
    ],
    ids=["cnn", "class-token", "patch", "patch-dropout", "distilled", "pooling"],
)
def test_networks_without_tokens_to_drop_are_refused_in_one_line(
    make_backbone: Make, build: Callable[[Make], nn.Module], words: str
) -> None:
    with pytest.raises(CalibrantError, match=words) as caught:
        reduce_tokens(build(make_backbone), "ats", keep_rate=0.5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["tome", "patchmerger", "sit", "dpcknn"])
def test_merging_refuses_rotary_positions(method: str) -> None:
    vit = timm.create_model("eva02_tiny_patch14_224", embed_dim=48, num_heads=3)
    with pytest.raises(CalibrantError, match=f"{method} merges tokens.*use topk, evit, dynamicvit or ats"):
        reduce_tokens(vit, method, keep_rate=0.5)


def test_settings_alone_validate_without_a_network() -> None:
    assert TokenReduction("evit", 0.25).rates == (0.25, 0.25, 0.25)
    assert TokenReduction("evit", 0.25, cla=True).head == "cla"
