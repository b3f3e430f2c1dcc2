"""Which patches of an image survive, are merged or are dropped at each stage; the numbers, and a drawing of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import ModelError
from calibrant.train.vit.hook import ReducedViT
from calibrant.train.vit.reductions.table import REDUCTIONS
from calibrant.train.vit.tokens import Tokens

DROPPED = -1


@dataclass(frozen=True)
class KeptStage:
    """One stage: block, and for each patch of the grid (rows, columns) the token that carries it, -1 = dropped.

    tokens: how many tokens carry patches. A patch that EViT sums into its fused token counts as dropped.
    """

    block: int
    token: NDArray[np.int64]
    tokens: int

    @property
    def survives(self) -> NDArray[np.bool_]:
        """Patches that are still there as themselves or inside a merged token, (rows, columns)."""
        there: NDArray[np.bool_] = self.token != DROPPED
        return there


def kept(model: ReducedViT, images: Tensor) -> list[list[KeptStage]]:
    """For each image (B, 3, H, W, normalised as for training) its stages in order.

    A patch of SiT and PatchMerger is assigned to the output token that reads it most. Runs in evaluation mode.
    """
    if model.settings.method == "none":
        raise ModelError("this network reduces no tokens, so nothing is dropped", fix="choose a method, such as evit")
    rows, columns = _grid(model, images)
    stages: list[list[KeptStage]] = [[] for _ in range(images.shape[0])]

    def watch(event: str, block: int, t: Tokens) -> None:
        stage = model._stage_of.get(block)
        if event != "out" or stage is None or t.where is None:
            return
        fused = t.x.shape[1] - 1 if REDUCTIONS[model.settings.method].fuses else DROPPED
        for b, before in enumerate(stages):
            where = t.where[b].cpu().numpy().reshape(rows, columns).copy()
            where[where == fused] = DROPPED
            if before and fused != DROPPED:  # the fused token of an earlier stage may itself have been kept
                where[~before[-1].survives] = DROPPED
            before.append(KeptStage(block, where, len(np.unique(where[where != DROPPED]))))

    before = model.training
    model.eval()
    with torch.no_grad():
        model.tokens(images, watch)
    model.train(before)
    return stages


def merges(model: ReducedViT) -> bool:
    """Whether tokens are merged, so that the drawing shows groups, or dropped, so that it shows holes."""
    return REDUCTIONS[model.settings.method].merges


def _grid(model: ReducedViT, images: Tensor) -> tuple[int, int]:
    ph, pw = model.patch_embed.patch_size  # type: ignore[union-attr,misc]
    return images.shape[2] // int(ph), images.shape[3] // int(pw)


def draw(image: NDArray[np.uint8], stages: list[KeptStage], *, merged: bool) -> NDArray[np.uint8]:
    """The image and, to the right of it, one panel a stage; image (H, W, 3), panels of the same size, 4 pixels apart.

    Dropped patches are dimmed to grey; where tokens are merged, the patches of one token get their mean colour and a
    line between neighbours that belong to different tokens.
    """
    panels = [image] + [_panel(image, s, merged) for s in stages]
    gap = np.full((image.shape[0], 4, 3), 255, np.uint8)
    strip = [part for panel in panels for part in (panel, gap)][:-1]
    return np.concatenate(strip, 1)


def _panel(image: NDArray[np.uint8], stage: KeptStage, merged: bool) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    rows, columns = stage.token.shape
    row = np.minimum(np.arange(height) * rows // height, rows - 1)
    column = np.minimum(np.arange(width) * columns // width, columns - 1)
    token, there = stage.token[row][:, column], stage.survives[row][:, column]
    out = image.astype(np.float32)
    if merged:
        for number in np.unique(token[there]):
            inside = there & (token == number)
            out[inside] = 0.25 * out[inside] + 0.75 * out[inside].mean(0)
        edge = np.zeros((height, width), bool)
        edge[:, 1:] |= token[:, 1:] != token[:, :-1]
        edge[1:] |= token[1:] != token[:-1]
        out[edge] = 255.0
    out[~there] = 0.25 * out[~there].mean(-1, keepdims=True) + 150.0
    return out.round().clip(0, 255).astype(np.uint8)
