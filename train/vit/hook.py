"""`reduce_tokens`: a timm vision transformer whose tokens shrink at a few blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from calibrant.train.vit.attention import Layer, TimmLayer
from calibrant.train.vit.backbone import (
    check,
    embed_patches,
    embeds_class,
    refuse_cut_patches,
    refuse_wrong_input,
)
from calibrant.train.vit.cache import CrossLayerCache, Store
from calibrant.train.vit.cla import CLAHead, IFAHead, classifier
from calibrant.train.vit.config import TokenReduction
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.reductions.table import REDUCTIONS
from calibrant.train.vit.tokens import Tokens

Watcher = Callable[[str, int, Tokens], None]


def reduce_tokens(
    vit: nn.Module,
    method: str,
    *,
    keep_rate: float | tuple[float, ...],
    locations: tuple[int, ...] = (3, 6, 9),
    cla: bool | str = False,
    cache_tokens: int = 0,
    cache_pool: bool | None = None,
    cache_pool_class: bool = False,
    late_recovery: bool = True,
    tome_repeat: bool = False,
    cla_multiplier: int = 2,
    ratio_weight: float = 2.0,
    cache: bool | None = None,
) -> ReducedViT:
    """The timm network `vit` with its tokens reduced by `method`; the options are those of `TokenReduction`.

    `vit` gives its layers away: the result shares them (nothing is copied) under the same parameter names, and with a
    CLA or IFA head the network's own final norm and head are removed. Works for VisionTransformer and Eva models with
    a class token: with or without qkv bias, DeiT-3, CLIP pre-norm, registers; with rotary positions topk, evit,
    dynamicvit and ats only.
    """
    rate = tuple(float(r) for r in keep_rate) if isinstance(keep_rate, (tuple, list)) else float(keep_rate)
    settings = TokenReduction(
        method,
        rate,
        tuple(int(i) for i in locations),
        cla,
        int(cache_tokens),
        cache_pool,
        cache_pool_class,
        late_recovery,
        tome_repeat,
        cla_multiplier,
        ratio_weight,
        cache,
    )
    check(vit, settings)
    return ReducedViT(vit, settings)


class ReducedViT(nn.Module):
    """Behaves like the timm network it was made from; parameter names are timm's, at top level.

    It owns no copy of the layers: its module, parameter and buffer tables *are* those of the timm object, which stays
    outside the module tree and lends its methods. New names: `cla.*` or `ifa.*`, `clc.*`, `<method>.<stage>.*`.
    """

    _vit: Any

    def __init__(self, vit: Any, settings: TokenReduction) -> None:
        super().__init__()
        for table in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[table] = vit.__dict__[table]
        self.__dict__["_vit"] = vit
        self.settings = settings
        self.depth = len(vit.blocks)
        self._auxiliary: Tensor | None = None
        self._stage_of = {block: s for s, block in enumerate(settings.locations) if settings.rates[s] < 1.0}
        self._read = tuple(sorted({*settings.locations, self.depth - 1}))
        patches, cached = vit.patch_embed.num_patches, bool(settings.cache)
        if settings.method != "none":
            stages = [Stage(s, settings.rates, cached) for s in range(len(settings.rates))]
            self._add(settings.method, nn.ModuleList(_make(settings, s, vit.embed_dim, patches) for s in stages))
        if settings.head != "none":
            head = self._make_head(vit.num_classes)
            for old in ("norm", "fc_norm", "head"):
                setattr(self, old, nn.Identity())
            vit.attn_pool = None
            self._add(settings.head, head)
        if cached:
            late = {self.depth - 2} if settings.late_recovery else set()
            cache = CrossLayerCache(
                vit.cls_token,
                settings.cache_tokens,
                tuple(sorted({*settings.locations, *late})),
                positions=embeds_class(vit),
                pool=bool(settings.cache_pool),
                pool_class=settings.cache_pool_class,
            )
            self._add("clc", cache)
        self.train(vit.training)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles leave out the loss of the last forward: it hangs on a graph that cannot be copied."""
        return {**self.__dict__, "_auxiliary": None}

    def _add(self, name: str, module: nn.Module) -> None:
        token = self._vit.cls_token
        self.add_module(name, module.to(token.device, token.dtype))

    def _make_head(self, classes: int) -> nn.Module:
        dim, depths = self._vit.embed_dim, len(self._read)
        if self.settings.head == "ifa":
            return IFAHead(dim, depths, classes)
        return CLAHead(dim, depths, classes, self.settings.cla_multiplier)

    @property
    def _aggregate(self) -> Any:
        """The CLA or IFA head, None where the network's own head is used."""
        return None if self.settings.head == "none" else getattr(self, self.settings.head)

    def tokens(self, images: Tensor, watch: Watcher | None = None) -> tuple[Tensor, Tokens]:
        """Class tokens after the read blocks, (B, D, T) in depth order, and the tokens that leave the last block.

        `watch(event, block, tokens)` is told about "in" and "out" of every block, before cached tokens are appended.
        """
        refuse_wrong_input(self._vit, images)
        t, store, patches = self._enter(images, watch is not None)
        clc: CrossLayerCache | None = getattr(self, "clc", None)
        marks = []
        for i in range(self.depth):
            if watch is not None:
                watch("in", i, t)
            if self._vit.grad_checkpointing and torch.is_grad_enabled():
                t = checkpoint(self._block, i, t, patches, use_reentrant=False)
            else:
                t = self._block(i, t, patches)
            if watch is not None:
                watch("out", i, t)
            if clc is not None and store is not None:
                t = clc.after(t, i, store)
            if i in self._read:
                marks.append(t.x[:, 0])
        if self.training:
            self._auxiliary = t.ratio
        return torch.stack(marks, 2), t

    def _enter(self, images: Tensor, watched: bool) -> tuple[Tokens, Store | None, int]:
        vit: Any = self._vit
        t = embed_patches(vit, images)
        patches, store = t.count, None
        clc: CrossLayerCache | None = getattr(self, "clc", None)
        if watched:
            place = torch.arange(t.prefix, t.prefix + patches, device=t.x.device)
            t = replace(t, where=place.expand(t.x.shape[0], -1))
        if clc is not None:
            store = Store(t.x.shape[1])
            if clc.tokens:
                t = t.append(vit.pos_drop(clc.start(t.x.shape[0])))
        return t.with_x(vit.norm_pre(t.x)), store, patches

    def _block(self, i: int, t: Tokens, patches: int) -> Tokens:
        layer, stage = self._layer(i), self._stage_of.get(i)
        if stage is None:
            return layer.whole(t)
        reduced: Tokens = getattr(self, self.settings.method)[stage](layer, t, patches)
        return reduced

    def _layer(self, i: int) -> Layer:
        return TimmLayer(self._vit.blocks[i], i)

    def forward_features(self, x: Tensor) -> Tensor:
        """Normalised tokens (B, N, D); with a CLA or IFA head the class tokens it reads, (B, D, T)."""
        marks, t = self.tokens(x)
        if self._aggregate is not None:
            return marks
        normed: Tensor = self._vit.norm(t.x)
        return normed

    def forward_head(self, feats: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits (B, C) from `forward_features`; with pre_logits what `get_classifier()` reads."""
        if self._aggregate is None:
            z: Tensor = self._vit.forward_head(feats, pre_logits=pre_logits)
            return z
        h: Tensor = self._vit.head_drop(self._aggregate(feats))
        return h if pre_logits else self._aggregate.pw(h)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C)."""
        return self.forward_head(self.forward_features(x))

    def auxiliary_loss(self) -> Tensor | None:
        """DynamicViT: ratio_weight times the mean over stages of the squared ratio error of the last training forward.

        None for every other method, and before the first training forward.
        """
        if self._auxiliary is None:
            return None
        return self.settings.ratio_weight * self._auxiliary / max(1, len(self._stage_of))

    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        head = self._aggregate
        classifier_: nn.Module = self._vit.get_classifier() if head is None else head.pw
        return classifier_

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """New last layer with fresh weights; with a CLA or IFA head the rest of the head stays."""
        head = self._aggregate
        if head is None:
            self._vit.reset_classifier(num_classes, global_pool)
            check(self._vit, self.settings)
            return
        token = self._vit.cls_token
        head.pw = classifier(head.width, num_classes).to(token.device, token.dtype).train(self.training)
        self._vit.num_classes = num_classes

    def set_input_size(self, img_size: tuple[int, int]) -> None:
        """Another image size: positions are resized as timm does.

        Counts follow the new number of patches, except for SiT and PatchMerger, whose counts are in their weights.
        """
        refuse_cut_patches(self._vit.patch_embed, *img_size)
        self._vit.set_input_size(img_size=img_size)

    def train(self, mode: bool = True) -> ReducedViT:
        """Set the mode here and in the timm object that lends its methods."""
        super().train(mode)
        self._vit.training = mode
        return self

    def no_weight_decay(self) -> set[str]:
        """timm's names and the learnable tokens of the cache."""
        return {*self._vit.no_weight_decay(), "clc.clr", "clc.clr_pos"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """timm's groups for layer-wise learning rates, the tokens of the cache with the stem."""
        groups = dict(self._vit.group_matcher(coarse))
        groups["stem"] = f"{groups['stem']}|^clc"
        return groups

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in the backward pass."""
        self._vit.set_grad_checkpointing(enable)

    @property
    def num_classes(self) -> int:
        """Number of outputs."""
        return int(self._vit.num_classes)

    @property
    def num_features(self) -> int:
        """Width of a token."""
        return int(self._vit.num_features)

    @property
    def embed_dim(self) -> int:
        """Width of a token."""
        return int(self._vit.embed_dim)

    @property
    def head_hidden_size(self) -> int:
        """Width of what the classifier reads."""
        return int(self._vit.head_hidden_size if self._aggregate is None else self._aggregate.width)

    @property
    def num_prefix_tokens(self) -> int:
        """Class token and registers."""
        return int(self._vit.num_prefix_tokens)

    @property
    def pretrained_cfg(self) -> Any:
        """timm's description of the weights and their preprocessing."""
        return getattr(self._vit, "pretrained_cfg", {})

    @property
    def default_cfg(self) -> Any:
        """The older name of `pretrained_cfg`, which timm's data helpers also look for."""
        return getattr(self._vit, "pretrained_cfg", {})

    @property
    def feature_info(self) -> Any:
        """timm's list of feature stages."""
        return self._vit.feature_info


def _make(settings: TokenReduction, stage: Stage, dim: int, patches: int) -> nn.Module:
    if stage.rate == 1.0:
        return nn.Identity()  # a stage that keeps everything owns no weights
    method = REDUCTIONS[settings.method]
    given = {"dim": dim, "patches": patches}
    arguments: dict[str, Any] = {name: given[name] for name in method.needs}
    arguments |= {keyword: getattr(settings, setting) for setting, keyword in method.options.items()}
    reduction = method.load()(stage, **arguments)
    for layer in reduction.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    return reduction
