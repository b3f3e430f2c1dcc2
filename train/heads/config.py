"""What a head can be told: one frozen dataclass per table of the TOML file. Every switch is off by default.

    [head] kind = "mlp"        [loss] name = "balanced-softmax"        [augment] mixup = 2.0

The same names serve `--set table.key=value` of `calibrant head` and the variants of `calibrant sweep`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from calibrant.config import build, with_overrides
from calibrant.errors import ConfigError

Kind = Literal["linear", "logistic", "mlp", "cosine", "arcface", "ncm", "lda", "map", "prototype"]
Activation = Literal["relu", "gelu", "gelu_ln"]
TransformName = Literal["none", "center", "standardise", "l2"]
WeightsName = Literal["none", "inverse", "sqrt", "effective"]
AuxiliaryName = Literal["none", "supcon", "balanced-contrastive", "weighted-supcon", "center", "prototype"]

TRAINED: tuple[Kind, ...] = ("linear", "mlp", "cosine", "arcface", "map", "prototype")  # by gradient steps
_READ_BY: dict[str, tuple[Kind, ...]] = {
    "hidden": ("mlp",), "activation": ("mlp",), "dropout": ("mlp",), "scale": ("cosine", "arcface", "ncm"),
    "margin": ("arcface",), "heads": ("map",), "temperature": ("prototype",), "l2": ("logistic",),
    "prior_rows": ("ncm", "lda"), "shrinkage": ("lda",), "between": ("lda",), "metric": ("ncm",),
}  # fmt: skip
HIDDEN: tuple[Kind, ...] = ("mlp", "map")  # have features of their own that an auxiliary loss can shape


@dataclass(frozen=True)
class HeadKind:
    """[head] The classifier on top of the features."""

    kind: Kind = "linear"
    hidden: tuple[int, ...] = (512,)  # mlp: widths of the hidden layers
    activation: Activation = "relu"  # mlp: gelu_ln is LayerNorm, then GELU
    dropout: float = 0.0  # mlp: on each hidden layer
    scale: float = 16.0  # cosine, arcface: s of s * cos
    margin: float = 0.5  # arcface: radians
    heads: int = 8  # map: attention heads
    temperature: float = 0.1  # prototype: cosine / temperature
    l2: float = 1e-3  # logistic: penalty on the weights, 0.5 * l2 * |W|^2
    prior_rows: float = 0.0  # ncm, lda: a class mean is drawn to the mean of all as if by so many rows more
    shrinkage: float | Literal["ledoit-wolf"] = 0.5  # lda: covariance (1 - s) S + s trace(S)/D I
    between: float = 0.0  # lda: share of the scatter of class means that is real; each direction is shrunken by it
    metric: Literal["euclidean", "cosine"] = "euclidean"  # ncm


@dataclass(frozen=True)
class HeadDataConfig:
    """[data] Which rows of the cache train, which validate, and through which views."""

    val_per_class: int | None = None  # hold out so many training rows of every class; None: the cache's val split
    val_fraction: float = 0.2  # where the cache has no val split and val_per_class is not given
    imbalance: float = 1.0  # thin what is left of class k to round(n * imbalance^(-rank_k / (C - 1)))
    order_seed: int = 42  # rank of the classes: RandomState(order_seed).permutation(C)
    split_seed: int | None = None  # which rows are held out and kept; None: the seed of the run
    train_views: tuple[str, ...] = ("eval",)  # each view of an image is a training row of its own
    test_views: tuple[str, ...] = ("eval",)  # features are averaged over these
    background: str | None = None  # a class that macro_f1_fg leaves out


@dataclass(frozen=True)
class InputConfig:
    """[input] What is done to the features first; statistics come from the training rows."""

    transform: TransformName = "none"
    power: float = 1.0  # sign(f) |f|^power before anything else; 1 leaves the features alone


@dataclass(frozen=True)
class HeadOptimizerConfig:
    """[optimizer]"""

    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = 3e-3
    weight_decay: float = 1e-2
    momentum: float = 0.9  # sgd
    epochs: int = 60
    batch_size: int = 128
    schedule: Literal["onecycle", "cosine", "constant"] = "onecycle"


@dataclass(frozen=True)
class HeadLossConfig:
    """[loss] Any loss of the toolkit; every other key of the table goes to the loss."""

    name: str = "ce"
    options: dict[str, Any] = field(default_factory=dict)
    label_smoothing: float = 0.0  # share of the target that is spread over all classes
    class_weights: WeightsName = "none"
    weights_beta: float = 0.9999  # effective number
    weights_from: float = 0.0  # share of the epochs before the weights set in (deferred re-weighting)
    hard_share: float = 1.0  # keep the share of rows of a batch with the largest loss
    hard_from: float = 0.2  # share of the epochs before that sets in


@dataclass(frozen=True)
class HeadAugmentConfig:
    """[augment] Changes to training features, drawn anew for each batch."""

    noise: float = 0.0  # standard deviation, as a share of each feature's own
    channel_scale: float = 0.0  # FroFA: each channel of a row times a factor from [1 - s, 1 + s]
    mixup: float = 0.0  # Beta(a, a); mixes rows and their labels
    mixup_layer: Literal["input", "hidden"] = "input"
    smote: float = 0.0  # fills every class up to this share of the largest with points between neighbours
    smote_neighbours: int = 5
    head_tail: float = (
        0.0  # share of tail rows moved towards a head row: f <- (1-lam) f_tail + lam f_head, tail's label
    )
    head_tail_lam: float = 0.3  # largest share of the head row


@dataclass(frozen=True)
class AuxiliaryConfig:
    """[auxiliary] A second loss on the hidden features of an mlp or map head."""

    name: AuxiliaryName = "none"
    weight: float = 0.5
    projection: int = 128  # width of the projection head; 0: none (center and prototype never use one)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SamplingConfig:
    """[sampling] How an epoch draws its rows."""

    name: Literal["random", "balanced", "sqrt"] = "random"


@dataclass(frozen=True)
class SecondPhaseConfig:
    """[crt] After the first phase: new last layer, class-balanced rows, plain cross-entropy, the rest frozen."""

    epochs: int = 0
    lr: float | None = None  # None: optimizer.lr


@dataclass(frozen=True)
class EnsembleConfig:
    """[ensemble] Heads that differ by seed alone, their last matrices averaged into one."""

    heads: int = 1


@dataclass(frozen=True)
class EmaConfig:
    """[ema]"""

    decay: float = 0.0  # average of the weights over steps; warmed up as min(decay, (1 + t) / (10 + t))


@dataclass(frozen=True)
class PostHocConfig:
    """[posthoc] What is done to trained logits, fitted on validation rows."""

    # Subtract so many log pi_train. auto: best macro-F1 of the validation rows, never below that of 0; likelihood:
    # fitted with the temperature.
    adjust: float | Literal["auto", "likelihood"] = 0.0
    temperature: Literal["none", "global", "per-class"] = "none"
    recall: float = 0.0  # shift each class's logit until its validation recall is at least this
    precision: float = 0.0  # ... or its precision
    target_prior: str | None = None  # class shares to fit for, as calibrant.priors reads them; None: the rows' own
    redraws: int = 0  # fit on so many more divisions of the same images into training and validation as well


@dataclass(frozen=True)
class HeadConfig:
    seed: int = 0
    head: HeadKind = field(default_factory=HeadKind)
    data: HeadDataConfig = field(default_factory=HeadDataConfig)
    input: InputConfig = field(default_factory=InputConfig)
    optimizer: HeadOptimizerConfig = field(default_factory=HeadOptimizerConfig)
    loss: HeadLossConfig = field(default_factory=HeadLossConfig)
    augment: HeadAugmentConfig = field(default_factory=HeadAugmentConfig)
    auxiliary: AuxiliaryConfig = field(default_factory=AuxiliaryConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    crt: SecondPhaseConfig = field(default_factory=SecondPhaseConfig)
    ema: EmaConfig = field(default_factory=EmaConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    posthoc: PostHocConfig = field(default_factory=PostHocConfig)


def head_config(
    table: Mapping[str, Any], overrides: Iterable[str] = (), *, where: str | Path = "options"
) -> HeadConfig:
    """The configuration of a TOML table with `a.b=value` settings laid over it, every value checked."""
    merged = with_overrides(table, overrides)
    for section, known in (("loss", HeadLossConfig), ("auxiliary", AuxiliaryConfig)):
        merged[section] = _options_inside(merged.get(section, {}), set(known.__dataclass_fields__))
    config = build(HeadConfig, merged, where=where)
    check(config, where)
    return config


def _options_inside(section: Any, own: set[str]) -> Any:
    """[loss] gamma = 2 reads better than [loss.options] gamma = 2; both are fine. A bare string is the name."""
    if isinstance(section, str):
        return {"name": section}
    if not isinstance(section, dict):
        return section
    extra = {k: v for k, v in section.items() if k not in own}
    kept = {k: v for k, v in section.items() if k in own}
    return kept | ({"options": {**kept.get("options", {}), **extra}} if extra else {})


def check(config: HeadConfig, where: str | Path) -> None:
    """Values of the right type without a meaning, and switches that could change nothing: both are refused."""
    loss, augment, head, optimizer = config.loss, config.augment, config.head, config.optimizer
    limits: list[tuple[str, float | None, float, float]] = [
        ("optimizer.epochs", optimizer.epochs, 1, 1e6), ("optimizer.batch_size", optimizer.batch_size, 1, 1e9),
        ("optimizer.lr", optimizer.lr, 1e-12, 1e6), ("optimizer.weight_decay", optimizer.weight_decay, 0, 1e6),
        ("data.imbalance", config.data.imbalance, 1, 1e9), ("data.val_per_class", config.data.val_per_class, 1, 1e9),
        ("data.val_fraction", config.data.val_fraction, 0.001, 0.9),
        ("loss.label_smoothing", loss.label_smoothing, 0, 0.999), ("loss.hard_share", loss.hard_share, 1e-6, 1),
        ("loss.hard_from", loss.hard_from, 0, 1), ("loss.weights_from", loss.weights_from, 0, 1),
        ("loss.weights_beta", loss.weights_beta, 0, 1 - 1e-12),
        ("augment.noise", augment.noise, 0, 1e6), ("augment.channel_scale", augment.channel_scale, 0, 1),
        ("augment.mixup", augment.mixup, 0, 1e6), ("augment.smote", augment.smote, 0, 1),
        ("augment.smote_neighbours", augment.smote_neighbours, 1, 1e6), ("augment.head_tail", augment.head_tail, 0, 1),
        ("augment.head_tail_lam", augment.head_tail_lam, 0, 1), ("head.dropout", head.dropout, 0, 0.999),
        ("head.scale", head.scale, 1e-6, 1e6), ("head.margin", head.margin, 0, 1.5707),
        ("head.temperature", head.temperature, 1e-6, 1e6), ("head.l2", head.l2, 0, 1e9),
        ("head.heads", head.heads, 1, 1e4),
        ("head.prior_rows", head.prior_rows, 0, 1e9), ("head.between", head.between, 0, 1e9),
        ("head.shrinkage", 0.5 if isinstance(head.shrinkage, str) else head.shrinkage, 0, 1),
        ("input.power", config.input.power, 1e-3, 10), ("ema.decay", config.ema.decay, 0, 1 - 1e-12),
        ("crt.epochs", config.crt.epochs, 0, 1e6), ("auxiliary.weight", config.auxiliary.weight, 0, 1e6),
        ("posthoc.recall", config.posthoc.recall, 0, 1), ("posthoc.precision", config.posthoc.precision, 0, 1),
        ("posthoc.redraws", config.posthoc.redraws, 0, 1000), ("ensemble.heads", config.ensemble.heads, 1, 1000),
    ]  # fmt: skip
    for name, value, low, high in limits:
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{name} is {value:g}, but must be from {low:g} to {high:g}", where=where)
    for name in ("train_views", "test_views"):
        if not getattr(config.data, name):
            raise ConfigError(f"data.{name} is empty", where=where, fix='use ["eval"]')
    if config.posthoc.recall and config.posthoc.precision:
        raise ConfigError("posthoc.recall and posthoc.precision both move the class shifts", where=where, fix="set one")
    _check_loss(loss)
    _refuse_idle_switches(config, where)


def _check_loss(loss: HeadLossConfig) -> None:
    """Name and options, before anything is trained: a sweep finds out about a typing error at its start."""
    import torch

    from calibrant.train.losses import create_loss

    with torch.random.fork_rng(devices=[]):  # some losses draw initial weights
        create_loss(loss.name, num_classes=2, feature_dim=2, class_counts=[1, 1], **loss.options)


def _refuse_idle_switches(config: HeadConfig, where: str | Path) -> None:
    """A switch that this kind of head cannot obey is an error, not a silence."""
    kind = config.head.kind
    plain = HeadKind()
    for name, kinds in _READ_BY.items():
        if kind not in kinds and getattr(config.head, name) != getattr(plain, name):
            raise ConfigError(
                f"a {kind} head does not read head.{name}",
                where=where,
                fix=f"leave it out, or use head.kind = {' or '.join(kinds)}",
            )
    if config.head.between and config.head.prior_rows:
        raise ConfigError("head.between and head.prior_rows both shrink the class means", where=where, fix="set one")
    if config.ensemble.heads > 1 and kind in HIDDEN:
        raise ConfigError(f"{kind} heads do not average into one matrix", where=where, fix="leave ensemble.heads out")
    if config.auxiliary.name != "none" and kind not in HIDDEN:
        raise ConfigError(
            f'auxiliary loss "{config.auxiliary.name}" would change nothing: a {kind} head has no hidden features',
            where=where,
            fix='use head.kind = "mlp" or "map"',
        )
    if config.augment.mixup and config.augment.mixup_layer == "hidden" and kind not in HIDDEN:
        raise ConfigError(f"a {kind} head has no hidden layer to mix in", where=where, fix='use mixup_layer = "input"')
    if kind in TRAINED:
        return
    default = HeadConfig()
    idle = [
        name
        for name in ("loss", "augment", "sampling", "crt", "ema", "ensemble")
        if getattr(config, name) != getattr(default, name)
        and not (kind == "logistic" and name == "loss" and _only_weights(config.loss))
        and not (name == "augment" and _only_smote(config.augment))
    ]
    if idle:
        raise ConfigError(
            f"a {kind} head is solved, not trained by steps, and does not obey [{idle[0]}]",
            where=where,
            fix=f"leave [{idle[0]}] out, or use one of: {', '.join(TRAINED)}",
        )


def _only_weights(loss: HeadLossConfig) -> bool:
    """L-BFGS obeys class weights, label smoothing and balanced softmax."""
    plain = HeadLossConfig(loss.name, loss.options, loss.label_smoothing, loss.class_weights, loss.weights_beta)
    return loss == plain and loss.name in ("ce", "balanced-softmax") and set(loss.options) <= {"tau"}


def _only_smote(augment: HeadAugmentConfig) -> bool:
    return augment == HeadAugmentConfig(smote=augment.smote, smote_neighbours=augment.smote_neighbours)


KINDS: tuple[str, ...] = get_args(Kind)
