"""What a head can be told: one frozen dataclass per table of the TOML file, each setting with its description.

    [head] kind = "mlp"        [loss] name = "balanced-softmax"        [augment] mixup = 2.0

The same names serve `--set table.key=value` of `calibrant head`, the variants of `calibrant sweep` and the controls of
the Laboratory. Every switch is off by default. A new setting is its line here and the code that obeys it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from calibrant.settings.losses import on_logits
from calibrant.settings.option import option

Kind = Literal["linear", "logistic", "mlp", "cosine", "arcface", "ncm", "lda", "map", "prototype"]
Activation = Literal["relu", "gelu", "gelu_ln"]
TransformName = Literal["none", "center", "standardise", "l2"]
WeightsName = Literal["none", "inverse", "sqrt", "effective"]
AuxiliaryName = Literal["none", "supcon", "balanced-contrastive", "weighted-supcon", "center", "prototype"]

KINDS: tuple[str, ...] = get_args(Kind)
TRAINED: tuple[Kind, ...] = ("linear", "mlp", "cosine", "arcface", "map", "prototype")  # by gradient steps
HIDDEN: tuple[Kind, ...] = ("mlp", "map")  # have features of their own that an auxiliary loss can shape
WEIGHTED: tuple[Kind, ...] = (*TRAINED, "logistic")
MATRIX: tuple[Kind, ...] = ("linear", "cosine", "arcface", "prototype")  # trained, and one matrix in the end


# fmt: off
@dataclass(frozen=True)
class HeadKind:
    """[head] The classifier on top of the features."""

    kind: Kind = option("linear", "Kind", "The classifier on top of the frozen features. Recommended on long tails: "
        "cosine with a total prior of 1.5; ncm (nearest class mean) and lda need no training.")
    hidden: tuple[int, ...] = option((512,), "Hidden layers", "Widths, separated by commas. Recommended: 512.",
        text="numbers", read_by=("mlp",))
    activation: Activation = option("relu", "Activation", "gelu_ln is LayerNorm, then GELU.", read_by=("mlp",))
    dropout: float = option(0.0, "Dropout", "On each hidden layer. Recommended with few images: 0.2.",
        allowed=(0, 0.999), slider=(0.0, 0.9, 0.05), read_by=("mlp",))
    scale: float = option(16.0, "Scale", "s of s · cos. Recommended: 16.",
        allowed=(1e-6, 1e6), slider=(1.0, 64.0, 1.0), read_by=("cosine", "arcface", "ncm"))
    margin: float = option(0.5, "ArcFace margin", "Angle, in radians, by which the right class must win. Recommended: "
        "0.5; less where classes are few.", allowed=(0, 1.5707), slider=(0.0, 1.0, 0.05), read_by=("arcface",))
    heads: int = option(8, "Attention heads", "Of the attention pooling over patches.",
        allowed=(1, 1e4), slider=(1, 16, 1), read_by=("map",))
    temperature: float = option(0.1, "Prototype temperature", "Divides the cosine to each prototype.",
        allowed=(1e-6, 1e6), slider=(0.02, 1.0, 0.02), read_by=("prototype",))
    l2: float = option(1e-3, "Penalty", "0.5 · l2 · |W|² of logistic regression.",
        allowed=(0, 1e9), slider=(0.0, 0.1, 0.0005), read_by=("logistic",))
    metric: Literal["euclidean", "cosine"] = option("euclidean", "Distance", "To the class means.", read_by=("ncm",))
    prior_rows: float = option(0.0, "Prior rows", "Pulls each class mean to the common mean, as if by so many rows "
        "more.",
        allowed=(0, 1e9), slider=(0.0, 50.0, 1.0), read_by=("ncm", "lda"))
    shrinkage: float | Literal["ledoit-wolf"] = option(0.5, "Shrinkage", "Of the covariance, towards a sphere: (1 - "
        "s) S + s trace(S)/D I; or by the formula of Ledoit and Wolf.", allowed=(0, 1), slider=(0.0, 1.0, 0.05),
        read_by=("lda",))
    between: float = option(0.0, "Shrink class means", "Share of the scatter of class means that is taken as real; "
        "each direction is shrunk by it. 0: not at all.", allowed=(0, 1e9), slider=(0.0, 2.0, 0.05), read_by=("lda",))


@dataclass(frozen=True)
class HeadDataConfig:
    """[data] Which rows of the cache train, which validate, and through which views."""

    imbalance: float = option(1.0, "Imbalance", "Thins the classes so that the commonest has so many times the images "
        "of the rarest, class k keeping round(n · imbalance^(-rank_k / (C - 1))); 1 takes all.",
        allowed=(1, 1e9), slider=(1.0, 200.0, 1.0))
    val_per_class: int | None = option(None, "Validation rows a class", "Held out of the training rows; 0: the "
        "cache's own validation split, or the share below.", allowed=(1, 1e9), slider=(0, 50, 1), none=0)
    val_fraction: float = option(0.2, "Validation share", "Where the cache has no validation split and no number a "
        "class is given.", allowed=(0.001, 0.9), slider=(0.05, 0.5, 0.05))
    order_seed: int = option(42, "Order of classes", "Which classes are common and which rare, when they are thinned: "
        "RandomState(order_seed).permutation(C).", slider=(0, 100, 1))
    folds: int | None = option(None, "Folds", "Judges every row by a head that was trained without its fold, and keeps "
        "the head of all rows; training and validation images count as one. 0: one split.", allowed=(2, 1000),
        slider=(0, 20, 2), none=0)
    split_seed: int | None = option(None, "Division", "Which rows are held out and kept; -1: as the seed says.",
        slider=(-1, 20, 1), none=-1)
    train_views: tuple[str, ...] = option(("eval",), "Views to train on", "Of those that the cache holds, separated by "
        "commas; each view of an image is a row of its own.", text="names")
    test_views: tuple[str, ...] = option(("eval",), "Views to average", "What the head is measured on, and what its "
        "deployed file averages.", text="names")
    average: Literal["features", "logits"] = option("features", "Average of views", "Over the test views: of their "
        "features, or of their logits. The same for a linear head; mlp and cosine heads differ.")
    background: str | None = option(None, "Background class", "A class that macro F1 without background leaves out.",
        text="name")


@dataclass(frozen=True)
class InputConfig:
    """[input] What is done to the features first; statistics come from the training rows."""

    transform: TransformName = option("none", "Transform", "Recommended: standardise (each feature to mean 0 and "
        "variance 1 over the training rows).")
    power: float = option(1.0, "Power", "sign(f) |f|^power before anything else; 0.5 tames heavy tails.",
        allowed=(1e-3, 10), slider=(0.1, 2.0, 0.1))


@dataclass(frozen=True)
class HeadAugmentConfig:
    """[augment] Changes to training features, drawn anew for each batch."""

    noise: float = option(0.0, "Feature noise", "Standard deviation of added noise, as a share of each feature's own. "
        "Recommended, if any: 0.1 to 0.3.", allowed=(0, 1e6), slider=(0.0, 2.0, 0.05), read_by=TRAINED)
    channel_scale: float = option(0.0, "Channel scaling", "Each channel of a row times a factor from 1 - s to 1 + s "
        "(FroFA).", allowed=(0, 1), slider=(0.0, 1.0, 0.05), read_by=TRAINED)
    mixup: float = option(0.0, "Manifold mixup", "a of Beta(a, a): mixes rows and their labels. Recommended, if any: "
        "0.2 to 2.", allowed=(0, 1e6), slider=(0.0, 4.0, 0.1), read_by=TRAINED)
    mixup_layer: Literal["input", "hidden"] = option("input", "Mixup at", "The features, or the hidden layer.",
        read_by=HIDDEN)
    smote: float = option(0.0, "SMOTE", "Fills every class up to this share of the largest, with points between "
        "neighbours.", allowed=(0, 1), slider=(0.0, 1.0, 0.05))
    smote_neighbours: int = option(5, "SMOTE neighbours", "Nearest rows of the class to draw from.",
        allowed=(1, 1e6), slider=(1, 20, 1))
    head_tail: float = option(0.0, "Head-tail mixing", "Share of tail rows that are moved towards a row of a common "
        "class, keeping the tail's label: f <- (1 - lam) f_tail + lam f_head.",
        allowed=(0, 1), slider=(0.0, 1.0, 0.05), read_by=TRAINED)
    consistency: float = option(0.0, "Consistency of views", "Weight of a second loss: half of KL(p, q) + KL(q, p) "
        "between what is said of an image and of another of its training views. Needs two of these.",
        allowed=(0, 1e6), slider=(0.0, 4.0, 0.1), read_by=TRAINED)
    head_tail_lam: float = option(0.3, "Head-tail, most", "Largest share of the common class's row.",
        allowed=(0, 1), slider=(0.0, 1.0, 0.05), read_by=TRAINED)


@dataclass(frozen=True)
class HeadLossConfig:
    """[loss] Any loss of the toolkit; every other key of the table goes to the loss."""

    name: str = option("ce", "Loss", "ce is cross-entropy. balanced-softmax and logit-adjusted correct the prior in "
        "training; then leave the logit adjustment after training at 0, or both correct it. A logistic head takes "
        "these two alone.",
        read_by=WEIGHTED, choices=on_logits())
    options: dict[str, Any] = option({}, "Options of the loss", "Settings of the chosen loss, separated by commas, "
        "e.g. gamma=2.", text="settings", read_by=WEIGHTED)
    label_smoothing: float = option(0.0, "Label smoothing", "Share of the target that is spread over all classes. "
        "Recommended, if any: 0.05 to 0.1.", allowed=(0, 0.999), slider=(0.0, 0.5, 0.01), read_by=WEIGHTED)
    class_weights: WeightsName = option("none", "Class weights", "By the number of training rows: 1/n, 1/sqrt(n), or "
        "the effective number.", read_by=WEIGHTED)
    weights_beta: float = option(0.9999, "Effective number, beta", "(1 - beta^n) / (1 - beta).",
        allowed=(0, 1 - 1e-12), slider=(0.9, 0.9999, 0.0001), read_by=WEIGHTED)
    weights_from: float = option(0.0, "Weights set in after", "Share of the epochs before the weights set in.",
        allowed=(0, 1), slider=(0.0, 1.0, 0.05), read_by=TRAINED)
    hard_share: float = option(1.0, "Share of hard rows kept", "Keeps the rows of a batch with the largest loss.",
        allowed=(1e-6, 1), slider=(0.1, 1.0, 0.05), read_by=TRAINED)
    hard_from: float = option(0.2, "Hard rows set in after", "Share of the epochs before that sets in.",
        allowed=(0, 1), slider=(0.0, 1.0, 0.05), read_by=TRAINED)


@dataclass(frozen=True)
class AuxiliaryConfig:
    """[auxiliary] A second loss on the hidden features of an mlp or map head; every other key goes to that loss."""

    name: AuxiliaryName = option("none", "Auxiliary loss", "On the hidden features, beside the main loss: supervised "
        "contrastive (SupCon) losses, centre or prototype loss.", read_by=HIDDEN)
    weight: float = option(0.5, "Auxiliary weight", "Of the auxiliary loss beside the main one.",
        allowed=(0, 1e6), slider=(0.0, 4.0, 0.05), read_by=HIDDEN)
    temperature: float | None = option(None, "Auxiliary temperature", "Of the contrastive losses and prototypes; "
        "lower is sharper. 0: the loss's own, .1 for contrastive ones and 1 for prototypes.",
        allowed=(1e-6, 1e6), slider=(0.0, 1.0, 0.02), none=0.0, read_by=HIDDEN)
    projection: int = option(128, "Projection", "Width of the projection that the contrastive losses see; 0: none.",
        allowed=(0, 1e6), slider=(0, 512, 16), read_by=HIDDEN)
    options: dict[str, Any] = option({}, "Options of the auxiliary loss", "Its settings, separated by commas, e.g. "
        "rate=0.5 for center.", text="settings", read_by=HIDDEN)


@dataclass(frozen=True)
class HeadOptimizerConfig:
    """[optimizer]"""

    epochs: int = option(60, "Epochs", "Passes over the training rows; the head takes seconds.",
        allowed=(1, 1e6), slider=(1, 300, 1))
    name: Literal["adamw", "sgd"] = option("adamw", "Optimiser", "")
    lr: float = option(3e-3, "Learning rate", "Recommended: 3e-3 for a linear head, 1e-3 for an mlp.",
        allowed=(1e-12, 1e6), slider=(0.0001, 0.03, 0.0001))
    weight_decay: float = option(1e-2, "Weight decay", "Pulls the weights to 0.",
        allowed=(0, 1e6), slider=(0.0, 0.3, 0.005))
    momentum: float = option(0.9, "Momentum", "Of sgd.", slider=(0.0, 0.99, 0.01))
    batch_size: int = option(128, "Batch size", "Rows a step.", allowed=(1, 1e9), slider=(16, 1024, 16))
    schedule: Literal["onecycle", "cosine", "constant"] = option("onecycle", "Learning rate over time", "")


@dataclass(frozen=True)
class SamplingConfig:
    """[sampling] How an epoch draws its rows."""

    name: Literal["random", "balanced", "sqrt"] = option("random", "Sampling", "balanced draws every class equally "
        "often, sqrt between the two.", read_by=TRAINED)


@dataclass(frozen=True)
class EmaConfig:
    """[ema]"""

    decay: float = option(0.0, "Average of the weights", "Exponential moving average over steps, warmed up as "
        "min(decay, (1 + t) / (10 + t)). Recommended, if any: 0.99.",
        allowed=(0, 1 - 1e-12), slider=(0.0, 0.999, 0.001), read_by=TRAINED)


@dataclass(frozen=True)
class SecondPhaseConfig:
    """[crt] After the first phase: new last layer, class-balanced rows, plain cross-entropy, the rest frozen."""

    epochs: int = option(0, "Second phase, epochs", "cRT: a new last layer on class-balanced rows, the rest frozen.",
        allowed=(0, 1e6), slider=(0, 60, 1), read_by=TRAINED)
    lr: float | None = option(None, "Second phase, learning rate", "0: as in the first phase.",
        allowed=(1e-12, 1e6), slider=(0.0, 0.03, 0.0001), none=0.0, read_by=TRAINED)


@dataclass(frozen=True)
class EnsembleConfig:
    """[ensemble] Heads that differ by seed alone, their last matrices averaged into one."""

    heads: int = option(1, "Heads averaged", "Heads that differ by seed alone, averaged into one.",
        allowed=(1, 1000), slider=(1, 20, 1), read_by=MATRIX)


@dataclass(frozen=True)
class PostHocConfig:
    """[posthoc] What is done to trained logits, fitted on validation rows."""

    adjust: float | Literal["auto", "likelihood"] = option(0.0, "Logit adjustment", "Subtracts so many log prior from "
        "the logits: 1 is Bayes, 1.5 is often best for macro-F1 on small noisy tails. Recommended for long tails: 1. "
        "auto: best macro-F1 on validation rows, never below that of 0; likelihood: fitted together with the "
        "temperature.",
        slider=(0.0, 3.0, 0.05))
    temperature: Literal["none", "global", "per-class"] = option("none", "Temperature", "Fitted on validation rows. "
        "Recommended: global.")
    target_prior: str | None = option(None, "Target prior", "Class shares to fit for: train, uniform, or class=share, "
        "...; nothing: the validation rows' own.", text="name")
    redraws: int = option(0, "Redraws", "Fits these on so many more divisions of the same images into training and "
        "validation as well.", allowed=(0, 1000), slider=(0, 10, 1))
    recall: float = option(0.0, "Wanted recall", "Shifts each class until its validation recall is at least this.",
        allowed=(0, 1), slider=(0.0, 0.99, 0.01))
    precision: float = option(0.0, "Wanted precision", "Or its precision; one of the two.",
        allowed=(0, 1), slider=(0.0, 0.99, 0.01))
# fmt: on


@dataclass(frozen=True)
class HeadConfig:
    seed: int = option(0, "Seed", "Of everything random.", slider=(0, 20, 1))
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
