"""Files of transformers give timm's networks transformers' own features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from calibrant.errors import ModelError
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.huggingface_keys import named_by_transformers, read_huggingface

transformers = pytest.importorskip("transformers")

SIZE = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
# family -> timm's name, image size, and what makes transformers' network the same one
FAMILIES: dict[str, tuple[str, int, str, dict[str, Any]]] = {
    "dinov2": ("vit_small_patch14_dinov2", 56, "Dinov2", {"patch_size": 14, "image_size": 56, "mlp_ratio": 4}),
    "registers": (
        "vit_small_patch14_reg4_dinov2", 56, "Dinov2WithRegisters", {"patch_size": 14, "image_size": 56, "mlp_ratio": 4}
    ),
    "dinov3": ("vit_small_patch16_dinov3_qkvb", 64, "DINOv3ViT", {"num_register_tokens": 4, "image_size": 64}),
    "dinov3-gated": (
        "vit_small_plus_patch16_dinov3_qkvb", 64, "DINOv3ViT",
        {"num_register_tokens": 4, "image_size": 64, "use_gated_mlp": True, "hidden_act": "silu"},
    ),
    "vit": ("vit_small_patch16_224", 64, "ViT", {"patch_size": 16, "image_size": 64, "layer_norm_eps": 1e-6}),
}  # fmt: skip


def saved(family: str, folder: Path, layers: int = 2) -> tuple[nn.Module, Path]:
    _, _, kind, more = FAMILIES[family]
    config = getattr(transformers, f"{kind}Config")(num_hidden_layers=layers, **SIZE, **more)
    torch.manual_seed(0)
    network = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for value in network.parameters():  # at their start all biases are zero and all scales equal
            value.add_(0.1 * torch.randn_like(value) / max(1.0, value.shape[-1] ** 0.5 / 4))
    network.save_pretrained(folder)
    return network, folder / "model.safetensors"


def tokens(model: nn.Module, x: Tensor) -> Tensor:
    return model.network.forward_features(x)  # type: ignore[no-any-return, operator, union-attr]


@pytest.mark.parametrize("family", list(FAMILIES))
def test_features_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    name, side, _, _ = FAMILIES[family]
    reference, file = saved(family, tmp_path)
    model = build_model(name, 3, weights=file, input_size=(side, side), depth=2).eval()
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(x).last_hidden_state
        got = tokens(model, x)
    assert expected.std() > 0.1
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-4)


def test_the_vision_tower_of_clip_is_taken_and_its_text_left(tmp_path: Path) -> None:
    vision = {**SIZE, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 1}
    text = {
        "hidden_size": 32,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "vocab_size": 50,
    }
    config = transformers.CLIPConfig(
        vision_config={**vision, "patch_size": 16, "image_size": 64, "hidden_act": "quick_gelu"},
        text_config=text, projection_dim=512,
    )  # fmt: skip
    torch.manual_seed(0)
    reference = transformers.CLIPModel(config).eval()
    reference.save_pretrained(tmp_path)
    model = build_model(
        "vit_base_patch16_clip_quickgelu_224", 3, weights=tmp_path / "model.safetensors", input_size=(64, 64), depth=1
    ).eval()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference.vision_model(x).pooler_output
        got = tokens(model, x)[:, 0]
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-4)


def test_a_bias_that_the_network_has_no_place_for_is_not_dropped(tmp_path: Path) -> None:
    _, file = saved("dinov3", tmp_path)
    with pytest.raises(ModelError, match="bias.*no place for") as refused:
        build_model("vit_small_patch16_dinov3", 3, weights=file, input_size=(64, 64), depth=2)
    assert "vit_small_patch16_dinov3_qkvb" in str(refused.value)
    tensors = {
        k: torch.zeros_like(v) if k.endswith("_proj.bias") and "attention" in k else v
        for k, v in load_file(file).items()
    }
    save_file(tensors, file)
    build_model("vit_small_patch16_dinov3", 3, weights=file, input_size=(64, 64), depth=2)


def test_a_file_with_a_block_missing_is_refused(tmp_path: Path) -> None:
    _, file = saved("dinov2", tmp_path)
    save_file({k: v for k, v in load_file(file).items() if "layer.1." not in k}, file)
    with pytest.raises(ModelError, match="lacks 14 of"):
        build_model("vit_small_patch14_dinov2", 3, weights=file, input_size=(56, 56), depth=2)


def test_other_names_are_left_to_timm(tmp_path: Path) -> None:
    save_file(build_model("test_vit", 3).network.state_dict(), tmp_path / "timm.safetensors")  # type: ignore[operator, arg-type, union-attr]
    assert read_huggingface(tmp_path / "timm.safetensors") is None
    assert not named_by_transformers(["conv1.weight", "layer.0.norm1.weight"])
