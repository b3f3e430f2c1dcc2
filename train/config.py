"""What a training run can be told: one frozen dataclass per table of the TOML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from calibrant.config import build, with_overrides
from calibrant.errors import ConfigError
from calibrant.train.vit.config import TokenReduction

Metric = Literal["accuracy", "balanced_accuracy", "nll", "ece", "adaptive_ece", "brier"]


@dataclass(frozen=True)
class DataConfig:
    """[data] Where the images are and how they become training, validation and test sets."""

    path: Path | None = None
    layout: str = "auto"  # by the files that are there, or a name of calibrant.images.layouts
    val_fraction: float = 0.2  # only where the data bring no validation set
    test_fraction: float = 0.2  # only where the data have no splits at all
    split_seed: int = 42  # not the training seed: several runs share one split
    groups: str | None = None  # csv, parquet: column whose values must not be divided between splits
    train_list: Literal["train", "train_val"] = "train"  # ufg: train_val is the published protocol
    stage: str | None = None  # ufg: R1, R3, R4, R5 or R6 of soyageing
    share: float = 1.0  # of the training and validation images, the same of every class
    test_share: float = 1.0
    imbalance: float | None = None  # thin the training set to a long tail, largest class over smallest
    sampler: Literal["shuffle", "sqrt", "balanced"] = "shuffle"  # classes drawn by n, sqrt(n), or equally
    on_bad_image: Literal["fail", "skip"] = "fail"
    cache: Literal["auto", "on", "off"] = "auto"  # decode every image once and keep the pixels in memory
    cache_limit_mb: int = 2048
    cache_dir: Path | None = None  # keep those pixels in a folder, for later runs and for all processes
    workers: int | None = None  # None: 0 with the cache, else one per core


@dataclass(frozen=True)
class ModelConfig:
    """[model] The network; `options` go to timm's constructor."""

    name: str = "resnet18"
    pretrained: bool | Literal["auto"] = "auto"  # auto: where the weights are in the cache or the hub answers
    weights: Path | None = None
    image_size: int | tuple[int, int] | None = None  # a side, or [height, width]; None: the pretrained configuration's
    in_chans: Literal[1, 3] = 3  # 1: the network sees the pictures in grey, its first layer has one channel
    crop_pct: float | None = None  # evaluation: share of the resized side that the crop keeps; None: the model's own
    normalise: Literal["model", "imagenet"] = (
        "model"  # mean and deviation of the pretrained configuration, or ImageNet's
    )
    small_stem: bool = False  # ResNets on 32 to 64 px: a 3 x 3 stem of stride 1 without pooling
    freeze: Literal["none", "backbone"] = "none"  # backbone: only the classifier learns
    train_last: int | None = None  # so many stages from the end learn, the classifier too; None: all
    head_init: Literal["auto", "zero", "model"] = "auto"  # zero on pretrained weights: timm's start is far off
    token_reduction: TokenReduction | None = None  # [model.token_reduction] method, keep_rate ...: vision transformers
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LossConfig:
    """[loss] Name and options; every key but `name` goes to the loss."""

    name: str = "ce"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimizerConfig:
    """[optimizer] As timm names them; note that timm's `sgd` is Nesterov and `momentum` is the plain one."""

    name: str = "adamw"
    lr: float | None = None  # None: 1e-3 from scratch, 1e-4 from pretrained weights (0.05 and 0.01 for sgd)
    head_lr_factor: float | None = None  # of the classifier's rate; None: 10 on pretrained weights, else 1
    weight_decay: float = 0.05
    momentum: float = 0.9
    layer_decay: float | None = None
    loss_lr: float | None = None  # for the loss's own parameters (gates, centres); None: lr
    clip_norm: float | None = None  # norm of all gradients together, the loss's own included
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScheduleConfig:
    """[schedule]"""

    name: Literal["cosine", "onecycle", "plateau", "step", "multistep", "constant"] = "cosine"
    epochs: int = 0  # 0: 30 from scratch; on pretrained weights by the number of images, some 100 updates at least
    warmup_epochs: float | None = None  # None: 15 % of the updates on pretrained weights, else none
    cooldown_epochs: int = 0  # cosine: the last of the epochs, at min_lr
    warmup_lr: float = 1e-6
    min_lr: float = 1e-6
    milestones: tuple[int, ...] = ()  # multistep
    decay_epochs: int = 30  # step
    decay_rate: float = 0.1  # step, multistep and plateau
    peak: float = 0.3  # onecycle: share of the updates at which the rate is highest
    plateau_patience: int = 5  # plateau: epochs without a better engine.select after which the rate is lowered


@dataclass(frozen=True)
class AugmentConfig:
    """[augment] What happens to training images; validation sees the evaluation transform only."""

    crop: Literal["random-resized", "pad", "resized", "none"] = "random-resized"
    scale: tuple[float, float] = (0.35, 1.0)  # random-resized: share of the area
    ratio: tuple[float, float] = (0.75, 4 / 3)
    pad: float = 0.125  # pad: share of the size on each side; resized: resize to size * (1 + pad), then crop
    flip: Literal["none", "horizontal", "both"] = "horizontal"
    views: int = 1  # an image so many times in a batch, each time augmented anew; an epoch is so much longer
    policy: Literal["none", "trivial", "rand", "auto", "augmix"] = "none"
    jitter: float = 0.0  # brightness, contrast and saturation
    erasing: float = 0.0  # probability
    transforms: tuple[str, ...] = ()  # of plugins, on the cropped picture
    mixup: float = 0.0  # alpha of its Beta distribution
    cutmix: float = 0.0
    superpixel_mix: int = 0  # OcCaMix: so many of the most salient superpixels of another image are pasted (its 3)
    superpixels: tuple[int, int] = (30, 50)  # superpixel_mix: an image is cut into so many, drawn for each batch
    mix_prob: float = 1.0  # share of batches that are mixed
    transplant: float = 0.0  # share of the images of frequent classes that get the salient patch of a rare one
    transplant_area: tuple[float, float] = (0.1, 0.3)  # of the patch, as a share of the image
    saliency: Literal["class-map", "spectral"] = "class-map"  # of those two: the network's own, or without one


@dataclass(frozen=True)
class EngineConfig:
    """[engine] How the steps run."""

    batch_size: int = 32  # images a micro-batch, over all processes
    accumulate: int = 1  # micro-batches an optimizer update
    drop_last: bool | None = None  # None: drop a short last batch unless it is the only one
    amp: Literal["none", "bf16", "fp16"] = "none"
    channels_last: bool = True
    compile: bool = False
    freeze_bn: Literal["auto", "on", "off"] = (
        "auto"  # batch statistics of the weights; auto: few images or small batches
    )
    grad_checkpointing: bool = False  # less memory for a second forward pass
    sync_bn: bool = False  # several processes: batch norm over the rows of all
    ema_decay: float | None = None
    ema_warmup: bool = False
    select: Metric | None = None  # the epoch that is kept; None: nll on pretrained weights, else accuracy
    keep: Literal["auto", "best", "last"] = "auto"  # last: few validation images choose no epoch well
    top_k: int = 0  # keep the model files of so many best epochs as well, in epochs/
    frozen_head: Literal["auto", "off"] = "auto"  # pretrained: a head on the frozen network is what has to be beaten
    patience: int | None = None  # stop after so many epochs without improvement
    checkpoint_minutes: float = 10.0  # besides after each epoch
    checkpoint_updates: int | None = None
    device: str = "auto"
    tensorboard: bool = True
    features: bool = False  # write features into the predictions files


@dataclass(frozen=True)
class TrainConfig:
    out: Path = Path("runs/train")
    seed: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


def train_config(
    table: Mapping[str, Any], overrides: Iterable[str] = (), *, where: str | Path = "options"
) -> TrainConfig:
    """The configuration of a TOML table with `a.b=value` settings laid over it, every value checked."""
    merged = with_overrides(table, overrides)
    loss = merged.get("loss", {})
    if isinstance(loss, str):
        loss = {"name": loss}
    if isinstance(loss, dict):  # [loss] alpha = 0.1 reads better than [loss.options] alpha = 0.1; both are fine
        options = {**loss.get("options", {}), **{k: v for k, v in loss.items() if k not in ("name", "options")}}
        merged["loss"] = {"options": options} | ({"name": loss["name"]} if "name" in loss else {})
    config = build(TrainConfig, merged, where=where)
    _check(config, where)
    return config


def _check(config: TrainConfig, where: str | Path) -> None:
    """Values that have the right type and no meaning."""
    engine, schedule, data, optimizer = config.engine, config.schedule, config.data, config.optimizer
    limits: list[tuple[str, float | None, float, float]] = [
        ("schedule.epochs", schedule.epochs, 0, 1e9),
        ("schedule.warmup_epochs", schedule.warmup_epochs, 0, schedule.epochs or 1e9),
        ("schedule.cooldown_epochs", schedule.cooldown_epochs, 0, (schedule.epochs or 1e9) - 1),
        ("model.crop_pct", config.model.crop_pct, 0.1, 1),
        ("engine.batch_size", engine.batch_size, 1, 1e9),
        ("engine.accumulate", engine.accumulate, 1, 1e9),
        ("engine.patience", engine.patience, 1, 1e9),
        ("engine.checkpoint_updates", engine.checkpoint_updates, 1, 1e12),
        ("engine.ema_decay", engine.ema_decay, 0, 1),
        ("data.val_fraction", data.val_fraction, 0.001, 0.9),
        ("data.test_fraction", data.test_fraction, 0, 0.9),
        ("data.share", data.share, 1e-6, 1),
        ("data.test_share", data.test_share, 1e-6, 1),
        ("data.workers", data.workers, 0, 1024),
        ("optimizer.lr", optimizer.lr, 0, 1e6),
        ("optimizer.weight_decay", optimizer.weight_decay, 0, 1e6),
        ("optimizer.clip_norm", optimizer.clip_norm, 1e-12, 1e12),
        ("model.train_last", config.model.train_last, 1, 1e9),
        ("optimizer.head_lr_factor", optimizer.head_lr_factor, 0, 1e6),
        *(("model.image_size", side, 1, 65536) for side in sides(config.model.image_size) or ()),
        ("engine.top_k", engine.top_k, 0, 1e4),
        ("schedule.peak", schedule.peak, 0, 1),
        ("schedule.decay_rate", schedule.decay_rate, 0, 1),
        ("schedule.plateau_patience", schedule.plateau_patience, 1, 1e6),
        ("augment.pad", config.augment.pad, 0, 1),
        ("augment.views", config.augment.views, 1, 1024),
        ("augment.jitter", config.augment.jitter, 0, 1),
        ("augment.erasing", config.augment.erasing, 0, 1),
        ("augment.mixup", config.augment.mixup, 0, 1e6),
        ("augment.cutmix", config.augment.cutmix, 0, 1e6),
        ("augment.mix_prob", config.augment.mix_prob, 0, 1),
        ("augment.superpixel_mix", config.augment.superpixel_mix, 0, 1e6),
        ("augment.transplant", config.augment.transplant, 0, 1),
        ("data.imbalance", data.imbalance, 1, 1e9),
    ]
    for name, value, low, high in limits:
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{name} is {value:g}, but must be from {low:g} to {high:g}", where=where)
    _check_mixing(config, where)
    if data.val_fraction + data.test_fraction >= 1:
        raise ConfigError("data.val_fraction and data.test_fraction leave nothing to train on", where=where)
    if schedule.name == "onecycle" and schedule.warmup_epochs:
        raise ConfigError(
            "onecycle warms up by itself", where="schedule.warmup_epochs", fix="set schedule.peak, the share of it"
        )
    if schedule.name == "multistep" and not schedule.milestones:
        raise ConfigError("schedule multistep needs schedule.milestones = [epoch, ...]", where=where)


def sides(image_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width of what the network takes; None: its own."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


def _check_mixing(config: TrainConfig, where: str | Path) -> None:
    """Ranges, and pairs of settings of which one would do nothing."""
    augment = config.augment
    for name, (low, high) in (("scale", augment.scale), ("transplant_area", augment.transplant_area)):
        if not 0 < low <= high <= 1:
            raise ConfigError(f"augment.{name} is [{low:g}, {high:g}], but must be 0 < low <= high <= 1", where=where)
    fewest, most = augment.superpixels
    if not max(2, augment.superpixel_mix + 1) <= fewest <= most <= 1024:
        raise ConfigError(
            f"augment.superpixels is [{fewest}, {most}], but must be low <= high <= 1024, with more of them than the "
            f"{augment.superpixel_mix} that are pasted",
            where=where,
        )
    always_mixed = (augment.mixup or augment.cutmix or augment.superpixel_mix) and augment.mix_prob == 1
    if always_mixed and config.loss.name == "vace":
        raise ConfigError(
            "vace learns the scatter of classes from unmixed batches and would see none",
            where="augment.mix_prob",
            fix="set it below 1, for example 0.5",
        )
    if (
        config.model.token_reduction is not None
        and augment.saliency == "class-map"
        and (augment.superpixel_mix or augment.transplant)
    ):
        raise ConfigError(
            "a transformer whose tokens are reduced has no class map", where="augment.saliency", fix='use "spectral"'
        )
    if always_mixed and augment.transplant:
        raise ConfigError(
            "patches are transplanted in batches that are not mixed, and all are",
            where="augment.mix_prob",
            fix="set it below 1, for example 0.5, or leave augment.transplant out",
        )
