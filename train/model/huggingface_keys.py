"""Backbones as Hugging Face's transformers name their tensors, in the names that timm reads.

DINOv2 (with registers or without), DINOv3, ViT and DeiT, and the vision tower of CLIP. They are given the names of
their authors' own files, which timm knows for each family; it then resamples positions and patches as for those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from calibrant.errors import FormatError, ModelError

_PREFIXES = ("dinov2_with_registers.", "dinov2.", "dinov3_vit.", "vit.", "deit.", "vision_model.", "model.")
_CLIP = re.compile(r"vision_model\.(embeddings|encoder|pre_layrnorm|post_layernorm)\.|(visual_projection)\.weight$")
_BLOCK = re.compile(r"(?:encoder\.)?(?:layer|layers)\.(\d+)\.(.+)\.(weight|bias|lambda1)$")

# What a block's part is called in the file, and by the network's authors.
_PARTS = {
    "norm1": "norm1", "layernorm_before": "norm1", "layer_norm1": "norm1",
    "norm2": "norm2", "layernorm_after": "norm2", "layer_norm2": "norm2",
    "attention.output.dense": "attn.proj", "attention.o_proj": "attn.proj", "self_attn.out_proj": "attn.proj",
    "layer_scale1": "ls1", "layer_scale2": "ls2",
    "mlp.fc1": "mlp.fc1", "intermediate.dense": "mlp.fc1", "mlp.fc2": "mlp.fc2", "output.dense": "mlp.fc2",
    "mlp.weights_in": "mlp.w12", "mlp.weights_out": "mlp.w3",
}  # fmt: skip
_ATTENTION = re.compile(r"(?:attention\.attention\.|attention\.|self_attn\.)(query|key|value|q_proj|k_proj|v_proj)$")
_OTHERS = {
    "embeddings.cls_token": "cls_token", "embeddings.class_embedding": "cls_token",
    "embeddings.distillation_token": "dist_token", "embeddings.mask_token": "mask_token",
    "embeddings.position_embeddings": "pos_embed", "embeddings.position_embedding.weight": "pos_embed",
    "embeddings.patch_embeddings.projection.weight": "patch_embed.proj.weight",
    "embeddings.patch_embeddings.projection.bias": "patch_embed.proj.bias",
    "embeddings.patch_embeddings.weight": "patch_embed.proj.weight",
    "embeddings.patch_embeddings.bias": "patch_embed.proj.bias",
    "embeddings.patch_embedding.weight": "patch_embed.proj.weight",
    "layernorm.weight": "norm.weight", "layernorm.bias": "norm.bias",
    "norm.weight": "norm.weight", "norm.bias": "norm.bias",
    "pre_layrnorm.weight": "norm_pre.weight", "pre_layrnorm.bias": "norm_pre.bias",
    "post_layernorm.weight": "norm.weight", "post_layernorm.bias": "norm.bias",
    "visual_projection.weight": "head.weight",
}  # fmt: skip


def read_huggingface(path: Path) -> dict[str, Tensor] | None:
    """The tensors of `path` under names that timm reads; None where transformers did not name them."""
    if path.suffix != ".safetensors":
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            if not named_by_transformers(file.keys()):
                return None
            return renamed({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  no mapping
    except SafetensorError as error:
        raise FormatError(f"no safetensors file ({error})", where=path) from None


def named_by_transformers(names: Iterable[str]) -> bool:
    plain = {_plain(name) for name in names}
    return bool({"embeddings.cls_token", "embeddings.class_embedding"} & plain) and any(map(_BLOCK.match, plain))


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Query, key and value become one matrix, a missing bias of theirs zero; heads and poolers are left out."""
    if any(_CLIP.match(name) for name in tensors):
        tensors = {k: v for k, v in tensors.items() if _CLIP.match(k)}
    found: dict[str, Tensor] = {}
    apart: dict[tuple[str, str], dict[str, Tensor]] = {}
    gated: dict[str, Tensor] = {}
    # DINOv3's authors say "storage" where DINOv2's say "register"; its blocks have no position table.
    third = not any(_plain(name).startswith("embeddings.position") for name in tensors)
    registers = "storage_tokens" if third else "register_tokens"
    for name, value in tensors.items():
        plain = _plain(name)
        if plain == "embeddings.register_tokens":
            found[registers] = value
        elif plain in _OTHERS:
            found[_OTHERS[plain]] = _shaped(_OTHERS[plain], value)
        elif match := _BLOCK.match(plain):
            block, part, kind = f"blocks.{match[1]}", match[2], "gamma" if match[3] == "lambda1" else match[3]
            if attention := _ATTENTION.match(part):
                apart.setdefault((block, kind), {})[attention[1][0]] = value
            elif part.startswith("mlp.") and part.endswith(("gate_proj", "up_proj", "down_proj")):
                gated[f"{block}.{part}.{kind}"] = value
            elif part in _PARTS:
                found[f"{block}.{_PARTS[part]}.{kind}"] = value
            else:
                raise ModelError(f'a block of an unknown kind: "{name}"', fix="give the weights as timm names them")
    found |= {f"{block}.attn.qkv.{kind}": _joined(parts) for (block, kind), parts in apart.items()}
    return found | _feed_forward(gated)


def refuse_lost_bias(tensors: Mapping[str, Tensor], name: str) -> None:
    """timm has DINOv3 with and without a bias of query, key and value, and drops what the second cannot take."""
    largest = max((float(v.abs().max()) for k, v in tensors.items() if k.endswith("attn.qkv.bias")), default=0.0)
    if "storage_tokens" in tensors and largest > 0 and "qkvb" not in name:
        raise ModelError(
            f"the file's attention has a bias (up to {largest:.2g}) that {name} has no place for",
            fix=f"--model {name.partition('.')[0]}_qkvb",
        )


def _plain(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _shaped(name: str, value: Tensor) -> Tensor:
    """Tokens and positions as [1, N, D]; the token of masked patches in DINOv2 is [1, D] as its authors have it."""
    if name in ("cls_token", "dist_token"):
        return value.reshape(1, 1, -1)
    return value.reshape(1, *value.shape[-2:]) if name == "pos_embed" else value


def _joined(parts: Mapping[str, Tensor]) -> Tensor:
    like = next(iter(parts.values()))
    return torch.cat([parts.get(letter, torch.zeros_like(like)) for letter in "qkv"])


def _feed_forward(gated: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """DINOv3: up and down, or with a gate, whose first half goes through the activation."""
    has_gate = any("gate_proj" in name for name in gated)
    names = (
        {"gate_proj": "w1", "up_proj": "w2", "down_proj": "w3"} if has_gate else {"up_proj": "fc1", "down_proj": "fc2"}
    )
    return {re.sub(r"\w+_proj", lambda m: names[m[0]], name): value for name, value in gated.items()}
