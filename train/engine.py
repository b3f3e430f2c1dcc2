"""Training from a configuration to a run folder."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.atomic import write_json
from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.crops import Augmentation
from calibrant.train.augment.donors import Donors
from calibrant.train.augment.mix import wanted_saliency
from calibrant.train.augment.saliency import Saliency
from calibrant.train.config import TrainConfig
from calibrant.train.data.loader import BatchPlan, TrainDataset, make_loader
from calibrant.train.data.pixel_source import prepare_images, worker_count
from calibrant.train.data.pixels import BadImage, FileStore, PixelStore
from calibrant.train.data.sources import SAMPLER_STRENGTH, donors_of, read_data, sampling_weights
from calibrant.train.data.split import Splits
from calibrant.train.defaults import resolved
from calibrant.train.distributed import Ranks, any_rank, barrier, pick_device, processes, same_start
from calibrant.train.evaluate import EvalSource
from calibrant.train.loop.epochs import Epoch
from calibrant.train.loop.frozen_head import LinearHead, can_have_one, fit_frozen_head
from calibrant.train.loop.optim import build_optimizer, build_schedule
from calibrant.train.loop.parts import Parts, autocast
from calibrant.train.loop.trainer import Trainer
from calibrant.train.losses import create_loss
from calibrant.train.losses.prior import total_correction
from calibrant.train.losses.shared.loss import Loss
from calibrant.train.machines.torchrun import launch_name
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.model.network import build_network, zero_head
from calibrant.train.model.synced_norm import Synced, sync_batch_norm
from calibrant.train.run.checkpoint import remove_leftovers
from calibrant.train.run.folder import CHECKPOINT_FILE, CONFIG_FILE, save_model
from calibrant.train.run.history import History
from calibrant.train.run.results import claim, write_results
from calibrant.train.run.resume import begun_by, more_epochs, state_for_all
from calibrant.train.run.run_record import (
    check_fingerprint,
    data_corrections,
    fingerprint_of,
    model_block,
    refuse_other_images,
    run_block,
)
from calibrant.train.seeds import seed_everything
from calibrant.train.start_line import again_line, start_line

log = logging.getLogger(__name__)


def fit(
    config: TrainConfig,
    *,
    splits: Splits | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_start: Callable[[str], None] | None = None,
    launch: str | None = None,
) -> Path:
    """Train, keep the best epoch, write predictions of the validation and test sets; gives the run folder.

    `splits`: images from elsewhere than config.data.path, for example arrays in memory. `on_start` is told what is
    about to happen, and soon afterwards how long it will take.
    `resume` goes on where the folder's checkpoint stands, exactly; `overwrite` throws away a run that is there.
    `launch` names what is started again, by default CALIBRANT_LAUNCH or what torchrun calls its group: a run that the
    same launch began goes on, whatever else is asked.
    """
    if config.data.path is None and splits is None:
        raise ConfigError("no data", fix="pass --data DIR or set data.path")
    try:
        with processes(config.engine.device) as ranks:
            launch = launch or launch_name()
            return _fit(
                config,
                ranks,
                splits,
                resume=resume,
                overwrite=overwrite,
                on_epoch=on_epoch,
                on_start=on_start,
                launch=launch,
            )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DataError(
                f"cannot be written to: {error.strerror}; what was written before is complete",
                where=config.out,
                fix="free some space and pass --resume",
            ) from None
        raise


def _fit(
    config: TrainConfig,
    ranks: Ranks,
    splits: Splits | None,
    *,
    resume: bool,
    overwrite: bool,
    on_epoch: Callable[[Epoch], None] | None,
    on_start: Callable[[str], None] | None,
    launch: str | None,
) -> Path:
    device = pick_device(config.engine.device, ranks)
    again = any_rank(ranks.first and begun_by(config.out, launch), device)
    if again:  # a group that died before its first checkpoint has left nothing to go on from
        resume = resume or any_rank(ranks.first and (config.out / CHECKPOINT_FILE).is_file(), device)
        overwrite = True
    splits = read_data(config.data) if splits is None else splits
    config = resolved(config, splits, device)
    state = state_for_all(config, device) if resume else None
    seed_everything(config.seed, "start")
    made = _make(config, splits, device, ranks)
    if ranks.first and state is None:
        claim(config.out, overwrite=overwrite)
    barrier()
    trainer = _trainer(config, splits, made, device, ranks, state, launch)
    if on_start is not None and ranks.first:
        if again and state is not None:
            on_start(again_line(trainer.at, config.schedule.epochs, ranks.world))
        on_start(start_line(config, splits, made.network, made.preprocessing, device, trainer.parts.plan.steps))
    if state is None and ranks.world == 1:
        trainer.parts.head = _frozen_head(config, splits, made, device)
    trainer.train(on_epoch, on_start if ranks.first else None)
    barrier()
    if ranks.first:
        write_results(config, config.out, splits, trainer.parts, trainer.bad, device)
    barrier()
    return config.out


@dataclass(frozen=True)
class _Made:
    """What the data and the configuration give; all that can be refused is refused before anything is written."""

    network: FeatureModel
    preprocessing: Preprocessing
    images: ImageSet
    store: PixelStore
    val: EvalSource
    bad: list[BadImage]
    counts: NDArray[np.int64]  # (C,) training images
    loss: Loss
    donors: Donors | None
    corrections: dict[str, float]  # of the class prior, by the data
    saliency: Saliency | None
    norms: Sequence[Synced]


def _make(config: TrainConfig, splits: Splits, device: torch.device, ranks: Ranks) -> _Made:
    network, preprocessing = build_network(config, len(splits.class_names))
    images, store, val, bad = prepare_images(config, splits, preprocessing, ranks)
    counts = images.counts(len(splits.class_names))
    _refuse_absent(counts, splits.class_names)
    loss = create_loss(
        config.loss.name,
        num_classes=len(splits.class_names),
        feature_dim=network.feature_dim,
        class_counts=counts.tolist(),
        **config.loss.options,
    )
    _refuse_auxiliary(loss, config.loss.name)
    if loss.needs_cosines:
        network.use_cosine_head()
    elif config.model.head_init == "zero":
        zero_head(network)
    network.frozen_norms = config.engine.freeze_bn == "on"
    donors = donors_of(config, images, counts)
    corrections = data_corrections(config, counts, donors)
    if ranks.first:
        total_correction(loss, others=corrections)  # for its warning
    saliency = wanted_saliency(config.augment, network, lambda: autocast(config.engine.amp, device))
    norms = sync_batch_norm(network.network) if config.engine.sync_bn else []
    return _Made(network, preprocessing, images, store, val, bad, counts, loss, donors, corrections, saliency, norms)


def _trainer(
    config: TrainConfig,
    splits: Splits,
    made: _Made,
    device: torch.device,
    ranks: Ranks,
    state: dict[str, Any] | None,
    launch: str | None,
) -> Trainer:
    """The trainer at the start of the run, or where `state` was taken."""
    run, fingerprint = config.out, fingerprint_of(made.images, ranks)
    refuse_other_images(fingerprint, config.data.path, device)
    parts = replace(_parts(config, made, device, ranks), saliency=made.saliency, norms=made.norms)
    history = None
    if ranks.first:
        remove_leftovers(run)
        if state is None or more_epochs(config):
            write_json(run / CONFIG_FILE, run_block(config, splits, made.preprocessing, launch))
        epochs = state["position"]["epoch"] if state is not None else 0
        history = History(run, epochs=epochs, tensorboard=config.engine.tensorboard)

    def save_best(best: FeatureModel, path: Path) -> None:
        block = model_block(config, splits, made.preprocessing, made.counts, made.loss, made.corrections, best)
        save_model(path, best, block)

    trainer = Trainer(config, parts, run, save_best=save_best, history=history, fingerprint=fingerprint)
    trainer.bad += made.bad
    if state is not None:
        check_fingerprint(state["fingerprint"], fingerprint, run)
        trainer.restore(state)
    return trainer


def _frozen_head(config: TrainConfig, splits: Splits, made: _Made, device: torch.device) -> LinearHead | None:
    """The head that training has to beat, where there can be one; its features cost a quarter of an epoch."""
    whole = config.model.freeze == "none" and config.model.token_reduction is None
    total = sum(made.corrections.values())
    if config.engine.frozen_head == "off" or not whole or not can_have_one(made.network, made.loss, total):
        return None
    train = EvalSource(
        splits.train,
        made.preprocessing,
        cache=False,
        workers=worker_count(config, cache=False),
        skip_bad=config.data.on_bad_image == "skip",
        what="training images",
    )
    engine = config.engine
    return fit_frozen_head(
        made.network, train, batch_size=max(64, engine.batch_size), device=device, channels_last=engine.channels_last
    )


def _refuse_absent(counts: NDArray[np.int64], names: tuple[str, ...]) -> None:
    absent = [names[k] for k in np.flatnonzero(counts == 0)]
    if absent:
        raise DataError(f'class "{absent[0]}" has no training image that can be read')


def _refuse_auxiliary(loss: Loss, name: str) -> None:
    if not loss.trains_classifier:
        raise ConfigError(
            f"{name} is an auxiliary term and trains no classifier",
            where="loss.name",
            fix="use it in Combined from Python, beside a loss on logits",
        )


def _parts(config: TrainConfig, made: _Made, device: torch.device, ranks: Ranks) -> Parts:
    network, loss, images, store = made.network, made.loss, made.images, made.store
    engine = config.engine
    network.to(device)
    if engine.channels_last:
        network.to(memory_format=torch.channels_last)
    loss.to(device)
    same_start([network, loss])
    drop = engine.drop_last if engine.drop_last is not None else True
    plan = BatchPlan(
        len(images),
        engine.batch_size,
        seed=config.seed,
        drop_last=drop,
        rank=ranks.rank,
        world=ranks.world,
        weights=sampling_weights(images, loss.num_classes, SAMPLER_STRENGTH[config.data.sampler]),
        views=config.augment.views,
    )
    dataset = TrainDataset(
        images, store, Augmentation(config.augment, made.preprocessing), seed=config.seed, donors=made.donors
    )
    workers = worker_count(config, cache=not isinstance(store, FileStore))
    loader = make_loader(dataset, plan, workers=workers, pin=device.type == "cuda")
    optimizer = build_optimizer(config, network, loss)
    updates = -(-plan.steps // engine.accumulate)
    schedule = build_schedule(config, optimizer, updates)
    ema = None
    if engine.ema_decay is not None:
        from timm.utils import ModelEmaV3

        ema = ModelEmaV3(network, decay=engine.ema_decay, use_warmup=engine.ema_warmup)
    return Parts(network, loss, optimizer, schedule, ema, plan, loader, made.val, made.preprocessing, device, ranks)
