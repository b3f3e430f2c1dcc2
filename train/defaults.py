"""What a configuration leaves open, decided once, from the data, the weights and the device.

From pretrained weights the defaults are those of a measurement (docs/training.md): classifier from zero with ten times
the rate, batch statistics left alone on few images, 15 % warm-up, some hundred updates at least. From scratch they are
the usual ones.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import torch

from calibrant.errors import ConfigError
from calibrant.train.config import TrainConfig
from calibrant.train.data.split import Splits
from calibrant.train.model.weights import weights_at_hand

logger = logging.getLogger(__name__)

SCRATCH_EPOCHS = 30
FINE_TUNE_UPDATES, FINE_TUNE_EPOCHS = 100, 4  # whichever is more
WARMUP_SHARE = 0.15
HEAD_RATE = 10.0
FEW_IMAGES, SMALL_BATCH = 10_000, 64  # below either, batch statistics of the pretrained weights are kept
ENOUGH_VALIDATION = 1_000  # from here on single epochs can be told apart


def resolved(config: TrainConfig, splits: Splits, device: torch.device) -> TrainConfig:
    """The configuration with everything decided, fit for this device."""
    if config.engine.amp == "fp16" and device.type != "cuda":
        raise ConfigError(f"fp16 needs a CUDA device, this is {device.type}", where="engine.amp", fix="use bf16")
    model, schedule, engine, optimizer = config.model, config.schedule, config.engine, config.optimizer
    if model.pretrained == "auto":
        there = model.weights is None and not model.small_stem and weights_at_hand(model.name)
        model = replace(model, pretrained=there)
    tuned = bool(model.pretrained) or model.weights is not None
    if model.head_init == "auto":
        model = replace(model, head_init="zero" if tuned else "model")
    images, batch = len(splits.train), engine.batch_size
    epochs = schedule.epochs or (_fine_tuning_epochs(images, batch * engine.accumulate) if tuned else SCRATCH_EPOCHS)
    warmup = schedule.warmup_epochs
    if warmup is None:
        warmup = WARMUP_SHARE * epochs if tuned and schedule.name != "onecycle" else 0.0
    frozen_norms = engine.freeze_bn
    if frozen_norms == "auto":
        frozen_norms = "on" if tuned and not engine.sync_bn and (images < FEW_IMAGES or batch < SMALL_BATCH) else "off"
    keep = engine.keep
    if keep == "auto":
        sure = not tuned or len(splits.val) >= ENOUGH_VALIDATION or engine.patience is not None
        keep = "best" if sure else "last"
    factor = optimizer.head_lr_factor
    return replace(
        config,
        model=model,
        optimizer=replace(
            optimizer,
            lr=_rate(config, tuned=tuned),
            head_lr_factor=(HEAD_RATE if tuned else 1.0) if factor is None else factor,
        ),
        schedule=replace(schedule, epochs=epochs, warmup_epochs=warmup),
        engine=replace(
            engine,
            freeze_bn=frozen_norms,
            keep=keep,
            select=engine.select or ("nll" if tuned else "accuracy"),
            frozen_head=engine.frozen_head if tuned else "off",
        ),
    )


def _fine_tuning_epochs(images: int, rows_an_update: int) -> int:
    updates = max(1, math.ceil(images / rows_an_update))  # an epoch's
    return max(FINE_TUNE_EPOCHS, math.ceil(FINE_TUNE_UPDATES / updates))


def _rate(config: TrainConfig, *, tuned: bool) -> float:
    if config.optimizer.lr is not None:
        return config.optimizer.lr
    if config.optimizer.name in ("sgd", "momentum", "sgdp"):
        return 0.01 if tuned else 0.05
    return 1e-4 if tuned else 1e-3
