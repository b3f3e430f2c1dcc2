"""`for_export`: the evaluation-only twin of a token-reduced network that an exporter should trace."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from timm.layers import PatchEmbed
from torch import Tensor, nn

from calibrant.errors import CalibrantError, ModelError
from calibrant.train.vit.backbone import check_size, embed_patches, refuse_wrong_input
from calibrant.train.vit.cache import CrossLayerCache, Store
from calibrant.train.vit.cla import CLAHead, fold
from calibrant.train.vit.hook import ReducedViT, reduce_tokens
from calibrant.train.vit.inference_block import FusableGELU, InferenceBlock
from calibrant.train.vit.tokens import Tokens

Attention = Literal["fused", "portable"]


def for_export(module: nn.Module, *, attention: Attention = "portable") -> nn.Module:
    """A copy of `module` with the same outputs, rewritten for speed in ONNX; `module` is left as it is.

    Token counts are constants of the graph; batch norms of the CLA head are folded; where only the class token is
    read, the last block computes it alone; patches come from one matrix product. attention: "portable" uses standard
    operators only, "fused" one com.microsoft Attention node per ordinary block (onnxruntime on CPU and CUDA only).
    A plain timm vision transformer is taken too, any other network is returned unchanged.
    """
    if attention not in ("fused", "portable"):
        raise ModelError(f'attention "{attention}" is not known', fix='use "fused" or "portable"')
    net = copy.deepcopy(module).eval()
    if not isinstance(net, ReducedViT):
        try:
            net = reduce_tokens(net, "none", keep_rate=1.0, locations=(0,))
        except CalibrantError:
            return net
    return DeployViT(net, fused=attention == "fused")


class DeployViT(nn.Module):
    """Has the interface of a timm network, for evaluation only; features are what the head reads and nothing more."""

    _vit: Any
    norm_pre: nn.Module
    layers: Any
    stages: Any

    def __init__(self, net: ReducedViT, *, fused: bool) -> None:
        super().__init__()
        vit: Any = net._vit
        self.__dict__["_vit"] = vit
        self.settings, self.depth, self._read, self._stage_of = net.settings, net.depth, net._read, net._stage_of
        token_head = vit.global_pool == "token" and vit.attn_pool is None
        self.class_only = (net.settings.head != "none" or token_head) and self.depth - 1 not in self._stage_of
        self.prefix = int(vit.num_prefix_tokens)
        self.embed = _Patches(vit)
        self.norm_pre = vit.norm_pre
        self.layers = nn.ModuleList(InferenceBlock(b, i, fused=fused) for i, b in enumerate(vit.blocks))
        self.stages = getattr(net, net.settings.method) if net.settings.method != "none" else None
        self.clc: CrossLayerCache | None = getattr(net, "clc", None)
        self.norm, self.fc_norm = vit.norm, vit.fc_norm
        self.aggregate: nn.Module | None = None
        if net.settings.head != "none":
            head: Any = net._aggregate
            self.aggregate = _FoldedCLA(head) if isinstance(head, CLAHead) else head
        self.head = net.get_classifier()
        self.num_classes, self.num_features = net.num_classes, net.num_features
        self.head_hidden_size, self.pretrained_cfg = net.head_hidden_size, net.pretrained_cfg
        self.requires_grad_(False)
        super().train(False)

    def forward_features(self, x: Tensor) -> Tensor:
        """Class tokens (B, D, T) for a CLA or IFA head, the normalised class token (B, D), or all tokens."""
        refuse_wrong_input(self._vit, x)
        t = self.embed(x, self.clc)
        store = None
        patches = t.count if self.clc is None else t.count - self.clc.tokens
        if self.clc is not None:
            store = Store(t.x.shape[1] - self.clc.tokens)
        t = t.with_x(self.norm_pre(t.x))
        marks = []
        for i, layer in enumerate(self.layers):
            if i == self.depth - 1 and self.class_only:
                marks.append(layer.class_only(t))
                break
            stage = self._stage_of.get(i)
            t = layer.whole(t) if stage is None or self.stages is None else self.stages[stage](layer, t, patches)
            if self.clc is not None and store is not None:
                t = self.clc.after(t, i, store)
            if i in self._read:
                marks.append(t.x[:, 0])
        if self.aggregate is not None:
            return torch.stack(marks, 2)
        normed: Tensor = self.norm(marks[-1] if self.class_only else t.x)
        return normed

    def forward_head(self, feats: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits (B, C) from `forward_features`."""
        if self.aggregate is not None:
            h = self.aggregate(feats)
        else:
            h = self.fc_norm(feats if self.class_only else self._vit.pool(feats))
        out: Tensor = h if pre_logits else self.head(h)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C)."""
        return self.forward_head(self.forward_features(x))

    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        return self.head

    def train(self, mode: bool = True) -> DeployViT:
        """Refused: what was folded cannot be trained."""
        if mode:
            raise ValueError("a network from for_export is for evaluation only; train the one it was made from")
        return super().train(False)


class _Patches(nn.Module):
    """Images to tokens: one matrix product on unfolded patches, positions and bias added as one constant.

    Images of another size than the network's own (dynamic_img_size) and patch embeddings that are more than one
    convolution take timm's way.
    """

    def __init__(self, vit: Any) -> None:
        super().__init__()
        embed: Any = vit.patch_embed
        check_size(vit)
        self.__dict__["_vit"] = vit
        self.prefix, self.size = int(vit.num_prefix_tokens), tuple(embed.img_size)
        self.grid, self.patch, self.count = embed.grid_size, embed.patch_size, int(embed.num_patches)
        conv: Any = getattr(embed, "proj", None)
        simple = isinstance(embed, PatchEmbed) and isinstance(conv, nn.Conv2d) and isinstance(embed.norm, nn.Identity)
        self.simple = simple and conv.kernel_size == conv.stride and not any(conv.padding)
        if not self.simple:
            self.conv = embed
            return
        self.channels = conv.in_channels
        with torch.no_grad():
            t = embed_patches(vit, torch.zeros(1, self.channels, *self.size, dtype=conv.weight.dtype))
        start = t.x.clone()  # the convolution of zeros is its bias, so these are prefix, positions and bias
        self.register_buffer("first", start[:, : self.prefix])
        self.register_buffer("rest", start[:, self.prefix :])
        self.register_buffer("rope", t.rope)
        self.register_buffer("weight", conv.weight.detach().flatten(1).t().contiguous())

    first: Tensor
    rest: Tensor
    weight: Tensor
    rope: Tensor | None

    def forward(self, images: Tensor, clc: CrossLayerCache | None) -> Tokens:
        """Tokens before the pre-norm, learnable ones included."""
        if self.simple and tuple(images.shape[-2:]) == self.size:
            (gh, gw), (ph, pw) = self.grid, self.patch
            x = images.reshape(-1, self.channels, gh, ph, gw, pw).permute(0, 2, 4, 1, 3, 5)
            x = x.reshape(-1, self.channels * ph * pw) @ self.weight
            x = x.reshape(-1, self.count, self.weight.shape[1]) + self.rest
            t = Tokens(torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1), self.prefix, rope=self.rope)
        else:
            t = embed_patches(self._vit, images)
        return t if clc is None or not clc.tokens else t.append(clc.start(t.x.shape[0]))


class _FoldedCLA(nn.Module):
    """CLA head with both batch norms inside the depth-wise weights (cla.fold)."""

    def __init__(self, head: CLAHead) -> None:
        super().__init__()
        weight, bias = fold(head)
        self.register_buffer("weight", weight.reshape(head.dw.in_channels, -1, weight.shape[1]))  # (D, g, T)
        self.register_buffer("bias", bias)
        self.act = FusableGELU()

    weight: Tensor
    bias: Tensor

    def forward(self, marks: Tensor) -> Tensor:
        """(B, D, T) -> (B, g D)."""
        h = (marks[:, :, None] * self.weight).sum(-1).flatten(1) + self.bias
        out: Tensor = self.act(h)
        return out
