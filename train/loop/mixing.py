"""A batch of training images mixed, or given patches of rare classes."""

from __future__ import annotations

from torch import Tensor

from calibrant.train.augment.mix import mix, mix_donors
from calibrant.train.config import TrainConfig
from calibrant.train.data.loader import Batch, to_network
from calibrant.train.loop.parts import Parts
from calibrant.train.losses.shared.target import MixedTarget
from calibrant.train.seeds import generator


def mixed(
    parts: Parts, config: TrainConfig, x: Tensor, labels: Tensor, batch: Batch, micro: int
) -> tuple[Tensor, Tensor | MixedTarget]:
    """The rows of micro-batch number `micro`, and their targets.

    Of several processes each mixes its own rows by its own draw, but all do the same kind of thing: losses gather
    targets of one kind.
    """
    augment, seed = config.augment, config.seed
    rng = generator(seed, "mix", micro, parts.ranks.rank)
    x, target = mix(x, labels, augment, rng, parts.saliency, generator(seed, "mixing", micro))
    if not augment.transplant or isinstance(target, MixedTarget):
        return x, target
    lent = batch.donated
    if lent is None:
        return x, MixedTarget(labels, labels, 1.0)
    assert parts.saliency is not None  # wanted_saliency() gives one where there are donors
    donors = to_network(lent.pixels, parts.preprocessing, parts.device, channels_last=config.engine.channels_last)
    return mix_donors(
        x, labels, donors, lent.labels.to(parts.device), lent.rows.to(parts.device), augment, rng, parts.saliency
    )
