"""What a run writes down about itself, and what must be unchanged for it to go on."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrant.config import to_table
from calibrant.errors import DataError
from calibrant.preprocessing import Preprocessing
from calibrant.train.checkpoint import environment
from calibrant.train.config import TrainConfig
from calibrant.train.data.image_set import ImageSet, Splits
from calibrant.train.distributed import Ranks
from calibrant.train.losses.base import Loss
from calibrant.train.run import FORMAT_VERSION

logger = logging.getLogger(__name__)

SAMPLER_STRENGTH = {"shuffle": 0.0, "sqrt": 0.5, "balanced": 1.0}


def absorbed_strength(config: TrainConfig, loss: Loss) -> float:
    """How much of the training prior the logits have lost: by the loss, and by drawing rare classes more often."""
    return float(loss.absorbed_prior_strength) + SAMPLER_STRENGTH[config.data.sampler]


def warn_of_two_corrections(config: TrainConfig, loss: Loss) -> None:
    if loss.absorbed_prior_strength and SAMPLER_STRENGTH[config.data.sampler]:
        logger.warning(
            "the class prior is corrected twice, by the loss %s (%.3g) and the %s sampler (%.3g): total strength %.3g, "
            "and 1 is Bayes", config.loss.name, loss.absorbed_prior_strength, config.data.sampler,
            SAMPLER_STRENGTH[config.data.sampler], absorbed_strength(config, loss),
        )  # fmt: skip


def run_block(config: TrainConfig, splits: Splits, preprocessing: Preprocessing) -> dict[str, Any]:
    sets = {"train": splits.train, "val": splits.val, "test": splits.test}
    return {
        "kind": "run", "format_version": FORMAT_VERSION, "config": to_table(config),
        "class_names": list(splits.class_names), "preprocessing": preprocessing.to_dict(),
        "images": {name: len(images) for name, images in sets.items() if images is not None},
        "environment": environment(),
    }  # fmt: skip


def model_block(
    config: TrainConfig, splits: Splits, preprocessing: Preprocessing, counts: np.ndarray[Any, Any], loss: Loss
) -> dict[str, Any]:
    taus, norm = inference_temperatures(loss), feature_norm(loss)
    reduction = config.model.token_reduction
    return {
        "model": {
            "name": config.model.name, "options": config.model.options, "cosine_head": loss.needs_cosines,
            "small_stem": config.model.small_stem,
            "token_reduction": None if reduction is None else to_table(reduction),
        },
        "class_names": list(splits.class_names), "preprocessing": preprocessing.to_dict(),
        "class_temperatures": taus,
        "gauge": str(getattr(loss, "gauge", "none")),
        "train_prior": (counts / counts.sum()).tolist(), "absorbed": absorbed_strength(config, loss),
        "feature_norm": norm,
        "loss": {"name": config.loss.name, "options": config.loss.options},
    }  # fmt: skip


def inference_temperatures(loss: Loss) -> list[float] | None:
    """What divides the logits at inference: VACE's tau, or one over the scale of a loss on cosines."""
    taus = loss.class_temperatures()
    if taus is None:
        ones = torch.ones(1, loss.num_classes, device=next(iter(loss.buffers()), torch.zeros(0)).device)
        scale = loss.adjust_logits(ones)[0]
        if bool((scale == 1).all()):
            return None
        taus = 1 / scale
    return [float(t) for t in taus.detach().float().cpu()]


def feature_norm(loss: Loss) -> list[float] | None:
    """Running mean and deviation of the features' L1 norm, where the loss keeps them (FeDLaS)."""
    index = getattr(loss, "nci", None)
    if index is None or getattr(loss, "indicator", "l1") != "l1":
        return None
    return [float(index.batch_mean), float(index.batch_std)]


def fingerprint_of(images: ImageSet, ranks: Ranks) -> dict[str, Any]:
    """What must be as it was for a run to go on exactly."""
    listing = json.dumps([list(images.ids), images.labels.tolist()]).encode()
    env = environment()
    return {
        "training images": hashlib.sha256(listing).hexdigest()[:16], "processes": ranks.world,
        "threads": env["threads"], "torch version": env["torch"],
    }  # fmt: skip


def check_fingerprint(old: dict[str, Any], new: dict[str, Any], run: Path) -> None:
    if old["training images"] != new["training images"]:
        raise DataError("the training images are not those that the run started with", where=run)
    for key in ("processes", "threads", "torch version"):
        if old[key] != new[key]:
            # The run is as good, but no longer bit-identical to an uninterrupted one.
            logger.warning(
                "%s: %s was %s and is %s; results may differ in the last digits", run, key, old[key], new[key]
            )
