"""The exported twin: same numbers in torch and onnxruntime, static graph, dynamic batch."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
from numpy.typing import NDArray
from timm.models.vision_transformer import ResPostBlock
from torch import Tensor, nn

from calibrant.train.vit import METHODS, reduce_tokens
from calibrant.train.vit.cla import CLAHead, fold
from calibrant.train.vit.deploy import DeployViT, for_export
from calibrant.train.vit.reductions.ats import ATS, FAR

FORBIDDEN = {"Loop", "If", "NonZero", "Unique", "RandomUniform", "RandomUniformLike", "Scan", "BatchNormalization"}
REDUCING = [m for m in METHODS if m != "none"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def export(module: nn.Module, size: int, path: Path) -> tuple[onnx.ModelProto, onnxruntime.InferenceSession]:
    images = torch.zeros(2, 3, size, size)
    program = torch.onnx.export(
        module,
        (images,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("N")},),
        input_names=["images"],
        opset_version=18,
        verbose=False,
    )
    assert program is not None
    program.save(str(path))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnx.load(path), onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@pytest.fixture(autouse=True)
def _quiet_trace() -> Iterator[None]:
    """pytest's log capture would keep the exporter's debug records, which makes an export ten times slower."""
    logging.disable(logging.INFO)
    yield
    logging.disable(logging.NOTSET)


def randomise(model: nn.Module) -> None:
    """Weights of a trained network's size, so that no term of the graph is too small to be seen."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            scale = 0.05 if p.dim() < 2 else 1.0 / p[0].numel() ** 0.5
            p.add_(torch.randn(p.shape, generator=generator) * scale)
        for name, b in model.named_buffers():
            if name.endswith("running_var"):
                b.add_(torch.rand(b.shape, generator=generator))
            elif name.endswith("running_mean"):
                b.add_(torch.randn(b.shape, generator=generator) * 0.3)


def settle(model: nn.Module, size: int) -> None:
    """Running statistics of the batch norms as training leaves them: those of the data.

    Any others would blow the logits up, and with them the rounding of torch's own float32.
    """
    generator = torch.Generator().manual_seed(4)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        for _ in range(2 if norms else 0):
            model(torch.randn(16, 3, size, size, generator=generator))
    for norm in norms:
        norm.eval()


QUICK = {("evit", True), ("ats", True), ("tome", False)}  # an export takes seconds: CI runs the others as slow


@pytest.mark.parametrize(
    ("method", "clca"),
    [
        pytest.param(m, c, marks=[] if (m, c) in QUICK else pytest.mark.slow, id=f"{m}-{'clca' if c else 'base'}")
        for m in REDUCING
        for c in (False, True)
    ],
)
def test_onnxruntime_equals_torch_on_a_static_graph(
    make_backbone: Callable[..., nn.Module], tmp_path: Path, method: str, clca: bool
) -> None:
    vit = make_backbone(img_size=56, depth=5)  # 49 patches
    model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1, 3), cla=clca, cache_tokens=int(clca)).eval()
    randomise(model)
    settle(model, 56)
    graph, session = export(for_export(model), 56, tmp_path / "m.onnx")
    operators = {(node.domain, node.op_type) for node in graph.graph.node}
    assert not {name for _, name in operators} & FORBIDDEN
    assert {domain for domain, _ in operators} <= {""}
    images = torch.randn(8, 3, 56, 56, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(images).numpy()
    together = session.run(None, {"images": images.numpy()})[0]
    alone = np.concatenate([session.run(None, {"images": images[i : i + 1].numpy()})[0] for i in range(8)])
    np.testing.assert_allclose(together, expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["evit", "tome", "dpcknn"])  # drops, merges pairs, clusters; ATS: below
def test_onnxruntime_equals_torch_on_the_reference_networks(reference: Any, tmp_path: Path, method: str) -> None:
    """Twelve blocks, with CLCA, which runs through every part of the reduction alone. All methods: small, above."""
    case = next(c for c in reference.index["cases"] if c["key"] == f"plain/{method}/0.25/clca")
    model = reference.build(case)
    images = torch.randn(8, 3, 112, 112, generator=torch.Generator().manual_seed(5))
    _, session = export(for_export(model), 112, tmp_path / "m.onnx")
    with torch.no_grad():
        expected = model(images).numpy()
    together = session.run(None, {"images": images.numpy()})[0]
    alone = np.concatenate([session.run(None, {"images": images[i : i + 1].numpy()})[0] for i in range(8)])
    np.testing.assert_allclose(together, expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)


def margins(model: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> NDArray[np.float64]:
    """How close each image comes to another choice in ATS, in float64: second smallest |u - c| less the smallest."""
    found: list[Tensor] = []

    def watched(score: Tensor, valid: Tensor, keep: int) -> tuple[Tensor, Tensor]:
        c = score.cumsum(1)
        c = (c / (c[:, -1:] + 1e-6)).masked_fill(~valid, FAR)
        u = (2 * torch.arange(1, keep + 1, dtype=c.dtype) - 1) / (2 * (keep + 1))
        two = (u[None, :, None] - c[:, None, :]).abs().topk(2, largest=False).values
        found.append((two[..., 1] - two[..., 0]).amin(1))
        return sample(score, valid, keep)

    sample = ATS.sample
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(ATS, "sample", staticmethod(watched))
        copy.deepcopy(model).double()(images.double())
    return torch.stack(found).amin(0).numpy()


def test_ats_chooses_the_same_tokens_in_any_batch_and_in_torch_unless_it_is_a_tie(
    reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sixth image is a near tie that a batch and a single image once decided differently."""
    model = reference.build(next(c for c in reference.index["cases"] if c["key"] == "plain/ats/0.25/clca"))
    images = torch.randn(64, 3, 112, 112, generator=torch.Generator().manual_seed(3))
    images[:8] = torch.randn(8, 3, 112, 112, generator=torch.Generator().manual_seed(3))
    _, session = export(for_export(model), 112, tmp_path / "m.onnx")
    alone = np.concatenate([session.run(None, {"images": images[i : i + 1].numpy()})[0] for i in range(64)])
    for size in (8, 3, 64):
        parts = [session.run(None, {"images": images[i : i + size].numpy()})[0] for i in range(0, 64, size)]
        np.testing.assert_allclose(np.concatenate(parts), alone, rtol=0, atol=1e-5)
    clear = margins(model, images, monkeypatch) > 1e-6
    assert clear.mean() > 0.9
    with torch.no_grad():
        expected = model(images).numpy()
    np.testing.assert_allclose(alone[clear], expected[clear], rtol=0, atol=2e-5)


@pytest.mark.parametrize("method", ["ats", pytest.param("evit", marks=pytest.mark.slow)])
def test_fused_attention_gives_the_same_logits(
    make_backbone: Callable[..., nn.Module], tmp_path: Path, method: str
) -> None:
    vit = make_backbone(img_size=56, depth=5)
    model = reduce_tokens(vit, method, keep_rate=0.5, locations=(2,), cla=True, cache_tokens=1).eval()
    randomise(model)
    settle(model, 56)
    graph, session = export(for_export(model, attention="fused"), 56, tmp_path / "m.onnx")
    assert sum(node.op_type == "Attention" for node in graph.graph.node) >= 2
    images = torch.randn(3, 3, 56, 56, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(images).numpy()
    got = session.run(None, {"images": images.numpy()})[0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


KINDS = (
    "vit_tiny_patch16_224",
    "deit3_small_patch16_224",
    "vit_base_patch16_224_miil",
    "vit_base_patch16_clip_224",
    "vit_base_patch16_clip_quickgelu_224",
    "vit_small_patch14_reg4_dinov2",
    "vit_small_patch16_dinov3",
    "vit_small_plus_patch16_dinov3",
    "eva02_tiny_patch14_224",
    "vit_small_patch16_rope_mixed_224",
)


@pytest.mark.parametrize("fused", [False, True], ids=["portable", "fused"])
@pytest.mark.parametrize("name", KINDS)
def test_twin_equals_the_network_for_every_kind_of_backbone(name: str, fused: bool) -> None:
    vit = timm.create_model(name, num_classes=7, img_size=112, embed_dim=48, num_heads=3)
    for method in ("evit", "ats"):
        model = reduce_tokens(copy.deepcopy(vit), method, keep_rate=0.4, cla=method == "ats", cache_tokens=1).eval()
        randomise(model)
        settle(model, 112)
        twin = for_export(model, attention="fused" if fused else "portable")
        assert isinstance(twin, DeployViT)
        images = torch.randn(3, 3, 112, 112)
        with torch.no_grad():
            expected, got = model(images), twin(images)
            split = twin.get_classifier()(twin.forward_head(twin.forward_features(images), pre_logits=True))
            exact = model.double()(images.double()), twin.double()(images.double())
        torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)
        torch.testing.assert_close(*exact, rtol=0, atol=2e-6)  # the algebra; what is folded is kept as float32
        torch.testing.assert_close(split, got, rtol=0, atol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"qk_norm": True},
        {"scale_attn_norm": True, "scale_mlp_norm": True},
        {"block_fn": ResPostBlock, "init_values": 0.5},
        {"fc_norm": True, "qkv_bias": False, "proj_bias": False, "init_values": 0.1},
    ],
    ids=["qk-norm", "inner-norms", "post-norm", "no-biases"],
)
def test_twin_equals_the_network_with_every_option_of_a_block(
    make_backbone: Callable[..., nn.Module], options: dict[str, Any]
) -> None:
    for method in ("evit", "ats"):
        vit = make_backbone(img_size=56, depth=5, **options)
        model = reduce_tokens(vit, method, keep_rate=0.5, locations=(1, 3), cache_tokens=1).eval()
        randomise(model)
        settle(model, 56)
        images = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(4))
        with torch.no_grad():
            expected = model(images)
            for attention in ("portable", "fused"):
                got = for_export(model, attention=attention)(images)
                torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)


def test_twin_of_a_network_for_any_size_takes_another_size(make_backbone: Callable[..., nn.Module]) -> None:
    model = reduce_tokens(make_backbone(dynamic_img_size=True), "evit", keep_rate=0.5, cache_tokens=1).eval()
    twin = for_export(model)
    for size in (112, 80):
        images = torch.randn(2, 3, size, size)
        with torch.no_grad():
            torch.testing.assert_close(twin(images), model(images), rtol=0, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vit_small_patch16_dinov3", "eva02_tiny_patch14_224", "vit_small_patch14_reg4_dinov2"]
)
def test_rotary_and_register_networks_export(name: str, tmp_path: Path) -> None:
    vit = timm.create_model(name, num_classes=7, img_size=112, embed_dim=48, num_heads=3, depth=4)
    model = reduce_tokens(vit, "evit", keep_rate=0.5, locations=(1,), cla=True, cache_tokens=1).eval()
    randomise(model)
    settle(model, 112)
    _, session = export(for_export(model), 112, tmp_path / "m.onnx")
    images = torch.randn(3, 3, 112, 112)
    with torch.no_grad():
        expected = model(images).numpy()
    got = session.run(None, {"images": images.numpy()})[0]
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


def test_folded_head_is_one_affine_map_per_channel() -> None:
    head = CLAHead(3, 4, 5)
    randomise(head)
    head.eval()
    marks = torch.randn(6, 3, 4)
    weight, bias = fold(head)
    by_hand = torch.stack([(marks[:, c // 2] * weight[c]).sum(1) + bias[c] for c in range(6)], 1)
    with torch.no_grad():
        direct = head.bn2(head.dw(head.bn1(marks))).flatten(1)
    torch.testing.assert_close(by_hand, direct, rtol=0, atol=1e-5)


def test_network_that_was_exported_is_untouched(make_backbone: Callable[..., nn.Module], images: Tensor) -> None:
    model = reduce_tokens(make_backbone("deit3"), "evit", keep_rate=0.5).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for_export(model)
    assert model.training
    assert list(before) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_plain_timm_network_gets_a_twin_and_a_cnn_passes_through(
    make_backbone: Callable[..., nn.Module], images: Tensor
) -> None:
    vit = make_backbone().eval()
    twin = for_export(vit)
    with torch.no_grad():
        torch.testing.assert_close(twin(images), vit(images), rtol=0, atol=1e-5)
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    assert isinstance(for_export(cnn), nn.Sequential)


def test_pooled_head_still_sees_all_tokens(make_backbone: Callable[..., nn.Module], images: Tensor) -> None:
    model = reduce_tokens(make_backbone(global_pool="avg"), "evit", keep_rate=0.5).eval()
    randomise(model)
    with torch.no_grad():
        torch.testing.assert_close(for_export(model)(images), model(images), rtol=0, atol=2e-5)


def test_twin_refuses_to_train(make_backbone: Callable[..., nn.Module]) -> None:
    twin = for_export(reduce_tokens(make_backbone(), "evit", keep_rate=0.5))
    with pytest.raises(ValueError, match="evaluation only"):
        twin.train()
