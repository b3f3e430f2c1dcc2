"""What a training run is made of; engine.py builds them and loop.py drives them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.saliency import Saliency
from calibrant.train.data.loader import Batch, BatchPlan
from calibrant.train.distributed import Ranks
from calibrant.train.evaluate import EvalSource
from calibrant.train.loop.frozen_head import LinearHead
from calibrant.train.losses.shared.loss import Loss
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.model.synced_norm import Synced


@dataclass
class Parts:
    """The network, its loss, its data and what moves it."""

    network: FeatureModel
    loss: Loss
    optimizer: torch.optim.Optimizer
    schedule: Any
    ema: Any  # timm's ModelEmaV3, or None
    plan: BatchPlan
    loader: DataLoader[Batch]
    val: EvalSource
    preprocessing: Preprocessing
    device: torch.device
    ranks: Ranks
    saliency: Saliency | None = None  # where mixing or transplants ask for it
    norms: Sequence[Synced] = ()
    head: LinearHead | None = None  # on the frozen network: kept unless training beats it


def autocast(amp: str, device: torch.device) -> AbstractContextManager[None]:
    dtype = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}[amp]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
