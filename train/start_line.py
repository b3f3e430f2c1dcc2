"""The one line before training: what is about to happen, and what was decided without being asked."""

from __future__ import annotations

import torch

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import TrainConfig
from calibrant.train.data.split import Splits
from calibrant.train.loop.epochs import Position
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.model.weights import weights_at_hand


def start_line(
    config: TrainConfig,
    splits: Splits,
    network: FeatureModel,
    preprocessing: Preprocessing,
    device: torch.device,
    steps: int,
) -> str:
    """`config` with everything decided; `steps`: batches of an epoch."""
    sets = {"train": splits.train, "val": splits.val, "test": splits.test}
    counts = ", ".join(f"{len(images):,} {name}" for name, images in sets.items() if images is not None and len(images))
    height, width = preprocessing.size
    optimizer, schedule, engine = config.optimizer, config.schedule, config.engine
    updates = -(-steps // engine.accumulate)
    assert optimizer.lr is not None  # decided by defaults.resolved()
    rates = f"{optimizer.name} {optimizer.lr:g}"
    if optimizer.head_lr_factor not in (None, 1.0):
        rates += f" (classifier {optimizer.lr * optimizer.head_lr_factor:g})"  # type: ignore[operator]
    parts = [
        f"{counts} images of {len(splits.class_names)} classes at {width} x {height} px",
        f"{config.model.name} {_weights(config)}, {_learning(network)}",
        f"{device}, {rates}",
        f"{schedule.epochs} epochs of {updates} updates",
    ]
    if engine.freeze_bn == "on" and any(
        isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in network.modules()
    ):
        parts.append("batch norm keeps the statistics of the weights")
    return "; ".join(parts)


def again_line(at: Position, epochs: int, processes: int) -> str:
    """Said in front of it where a group of processes was lost and started again."""
    where = f"epoch {at.epoch + 1}/{epochs}, batch {at.step + 1}" if at.epoch < epochs else "the predictions"
    return f"started again with {processes} process{'es' if processes > 1 else ''}: goes on at {where}"


def _weights(config: TrainConfig) -> str:
    model = config.model
    if model.weights is not None:
        return f"from {model.weights.name}"
    if model.pretrained:
        return "from timm's pretrained weights"
    if weights_at_hand(model.name):
        return "from scratch"
    return "from scratch (no pretrained weights in the cache and no hub in reach; --weights takes a local file)"


def _learning(network: FeatureModel) -> str:
    learning = sum(p.numel() for p in network.parameters() if p.requires_grad)
    every = sum(p.numel() for p in network.parameters())
    share = "" if learning == every else f" of {every / 1e6:.1f} M"
    return f"{learning / 1e6:.1f} M{share} weights learn"
