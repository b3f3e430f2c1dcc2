"""What a run writes down about itself, and what must be unchanged for it to go on."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant import plugins
from calibrant.config import to_table
from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.donors import Donors
from calibrant.train.config import TrainConfig
from calibrant.train.data.sources import SAMPLER_STRENGTH
from calibrant.train.data.split import Splits
from calibrant.train.distributed import Ranks, gather_uneven
from calibrant.train.losses.prior import weight_strength
from calibrant.train.losses.shared.loss import Loss
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.model.foreign import kept_options
from calibrant.train.model.network import options_of
from calibrant.train.run.checkpoint import environment
from calibrant.train.run.folder import FORMAT_VERSION

log = logging.getLogger(__name__)


def data_corrections(config: TrainConfig, counts: NDArray[np.int64], donors: Donors | None = None) -> dict[str, float]:
    """Strength of the prior corrections that the data bring, by name, 1 being all of it: rare classes are drawn more
    often, or their patches transplanted into other images. counts: (C,).
    """
    found = {f"the {config.data.sampler} sampler": SAMPLER_STRENGTH[config.data.sampler]}
    if donors is not None:
        augment = config.augment
        mixing = any((augment.mixup, augment.cutmix, augment.superpixel_mix))
        mass = donors.label_mass(sum(augment.transplant_area) / 2 * (1 - augment.mix_prob * mixing))
        strength = weight_strength(torch.from_numpy(mass / donors.counts), torch.from_numpy(counts))
        found["transplanted patches"] = round(strength, 4)
    return found


def run_block(
    config: TrainConfig, splits: Splits, preprocessing: Preprocessing, launch: str | None = None
) -> dict[str, Any]:
    """`launch`: who began the run, so that a group of processes that is started again knows its own."""
    sets = {"train": splits.train, "val": splits.val, "test": splits.test}
    return {
        "kind": "run", "format_version": FORMAT_VERSION, "config": to_table(config),
        "class_names": list(splits.class_names), "preprocessing": preprocessing.to_dict(),
        "images": {name: len(images) for name, images in sets.items() if images is not None},
        "environment": environment(), "plugins": [p.to_dict() for p in plugins.loaded()],
        **({} if launch is None else {"launch": launch}),
    }  # fmt: skip


def model_block(
    config: TrainConfig,
    splits: Splits,
    preprocessing: Preprocessing,
    counts: NDArray[np.int64],
    loss: Loss,
    corrections: Mapping[str, float],
    network: FeatureModel,
) -> dict[str, Any]:
    taus, norm = inference_temperatures(loss), feature_norm(loss)
    reduction = config.model.token_reduction
    return {
        "model": {
            "name": config.model.name, "options": kept_options(network.network, options_of(config.model)),
            "cosine_head": loss.needs_cosines,
            "small_stem": config.model.small_stem,
            "token_reduction": None if reduction is None else to_table(reduction),
        },
        "class_names": list(splits.class_names), "preprocessing": preprocessing.to_dict(),
        "class_temperatures": taus,
        "gauge": str(getattr(loss, "gauge", "none")),
        "train_prior": (counts / counts.sum()).tolist(),
        "absorbed": float(loss.absorbed_prior_strength) + sum(corrections.values()),
        "feature_norm": norm,
        "loss": {"name": config.loss.name, "options": config.loss.options},
        "plugins": [p.to_dict() for p in plugins.loaded()],
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


def refuse_other_images(fingerprint: Mapping[str, Any], where: Path | None, device: torch.device) -> None:
    """Processes on several machines must read one data set: each takes its part of the same list."""
    own = torch.tensor([int(fingerprint["training images"], 16) >> 1], device=device)
    if len(set(gather_uneven(own).tolist())) > 1:
        raise DataError(
            "the processes find different training images",
            where=where,
            fix="give all machines the same data under the same path",
        )


def check_fingerprint(old: dict[str, Any], new: dict[str, Any], run: Path) -> None:
    if old["training images"] != new["training images"]:
        raise DataError("the training images are not those that the run started with", where=run)
    for key in ("processes", "threads", "torch version"):
        if old[key] != new[key]:
            # The run is as good, but no longer bit-identical to an uninterrupted one.
            log.warning("%s: %s was %s and is %s; results may differ in the last digits", run, key, old[key], new[key])
