"""Which timm networks can shed tokens, and how their tokens are made."""

from __future__ import annotations

from typing import Any

from timm.layers import Attention, AttentionRope, PatchEmbed
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva, EvaAttention, EvaBlock, EvaBlockPostNorm
from timm.models.vision_transformer import Block, ResPostBlock, VisionTransformer
from torch import Tensor, nn

from calibrant.errors import ModelError
from calibrant.train.vit.config import TokenReduction
from calibrant.train.vit.reductions.table import REDUCTIONS
from calibrant.train.vit.tokens import Tokens

BLOCKS = (Block, ResPostBlock, EvaBlock, EvaBlockPostNorm)
ATTENTIONS = (Attention, AttentionRope, EvaAttention)


def check(vit: Any, settings: TokenReduction) -> None:
    """Refuse, in one line, a network whose tokens this method cannot reduce."""
    name = type(vit).__name__
    if not isinstance(vit, (VisionTransformer, Eva)):
        raise ModelError(
            f"{name} is not a plain vision transformer; token reduction cannot drop its tokens",
            fix="use a timm VisionTransformer or Eva model such as vit_small_patch16_224",
        )
    if vit.cls_token is None:
        raise ModelError(
            f"this {name} has no class token, which token reduction reads",
            fix='build it with class_token=True, global_pool="token"',
        )
    if isinstance(vit, VisionTransformerDistilled):
        raise ModelError("a distilled DeiT has two class tokens", fix="use the DeiT of the same size without distilled")
    for block in vit.blocks:
        if type(block) not in BLOCKS or type(block.attn) not in ATTENTIONS:
            raise ModelError(
                f"blocks of type {type(block).__name__} with {type(getattr(block, 'attn', None)).__name__} "
                "are not supported by token reduction",
                fix="use a network of plain timm Block or EvaBlock",
            )
    if not isinstance(getattr(vit, "patch_drop", None), (nn.Identity, type(None))):
        raise ModelError("patch dropout and token reduction both drop patches", fix="set patch_drop_rate to 0")
    check_size(vit)
    method = REDUCTIONS.get(settings.method)
    if getattr(vit, "rope", None) is not None and method is not None and method.merges:
        *others, last = (m.name for m in REDUCTIONS.values() if not m.merges)
        raise ModelError(
            f"{settings.method} merges tokens, but this {name} rotates each by its own position",
            fix=f"use {', '.join(others)} or {last}",
        )
    pooled = vit.global_pool != "token" or getattr(vit, "attn_pool", None) is not None
    if settings.head == "none" and pooled and method is not None and method.masks:
        raise ModelError(
            f"{settings.method} masks tokens, which {vit.global_pool!r} pooling would count",
            fix='build the network with global_pool="token", or use the CLA head',
        )
    settings.fit(len(vit.blocks))


def check_size(vit: Any) -> None:
    """Refuse an image size that cuts patches: timm would silently leave out the rest of the image."""
    embed = vit.patch_embed
    if not isinstance(embed, PatchEmbed) or embed.img_size is None or embed.dynamic_img_pad:
        return
    refuse_cut_patches(embed, *embed.img_size)


def refuse_cut_patches(embed: Any, height: int, width: int) -> None:
    """One line for an image that does not divide into whole patches."""
    ph, pw = embed.patch_size
    if height % ph or width % pw:
        raise ModelError(
            f"image size {height} x {width} is not divisible by the patch size {ph} x {pw}",
            fix=f"use for example {height - height % ph or ph} x {width - width % pw or pw}",
        )


def refuse_wrong_input(vit: Any, x: Tensor) -> None:
    """One line instead of timm's assertion for images of another size than the network was built for."""
    embed = vit.patch_embed
    if not isinstance(embed, PatchEmbed) or embed.dynamic_img_pad or embed.img_size is None:
        return
    height, width = x.shape[-2:]
    if not isinstance(height, int) or not isinstance(width, int):  # symbolic sizes of a trace
        return
    refuse_cut_patches(embed, height, width)
    if not vit.dynamic_img_size and (height, width) != tuple(embed.img_size):
        raise ModelError(
            f"images are {height} x {width}, but the network was built for {embed.img_size[0]} x {embed.img_size[1]}",
            fix="resize the images, or call set_input_size",
        )


def embed_patches(vit: Any, images: Tensor) -> Tokens:
    """Class token, registers and patches, ready for block 0 except for the pre-norm."""
    x = vit._pos_embed(vit.patch_embed(images))
    rope = None
    if isinstance(vit, Eva):
        x, rope = x
    if rope is not None:
        rope = rope[:, None] if getattr(vit, "rope_mixed", False) else rope[None, None, None]
    return Tokens(x, vit.num_prefix_tokens, rope=rope)


def embeds_class(vit: Any) -> bool:
    """Whether the position embedding has a row for the class token."""
    return vit.pos_embed is not None and not vit.no_embed_class
