"""The switches of `calibrant head`, as the Laboratory offers them: what each does, its range, its default.

Off by default, all of them. A test holds keys, defaults, choices and what each kind of head reads to the configuration
of the command; this file cannot import it, as the dashboard must not load torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from calibrant.errors import ConfigError

Value = bool | int | float | str
BY_HAND = "by hand"

TRAINED = ("linear", "mlp", "cosine", "arcface", "map", "prototype")  # by gradient steps; the others are solved
_MATRIX = ("linear", "cosine", "arcface", "prototype")  # trained, and one matrix in the end
HIDDEN = ("mlp", "map")


@dataclass(frozen=True)
class Switch:
    """`options` makes a choice, `limits` a slider (whole numbers where all three are whole), neither a line of text."""

    key: str  # table.key as --set takes it; "table.key:how" chooses a word in the place of that key's number
    label: str
    default: Value
    help: str
    options: tuple[str, ...] = ()
    limits: tuple[float, float, float] | None = None  # low, high, step
    read_by: tuple[str, ...] = ()  # kinds of head that read it; none named: all
    text: str = ""  # what a line of text holds: "numbers", "names", "name", "settings"

    def tooltip(self) -> str:
        default = f"`{self.default}`" if self.default != "" else "nothing"
        only = f" Read by: {', '.join(self.read_by)}." if self.read_by else ""
        return f"{self.help}{only} Default: {default}. Set as `{self.key.partition(':')[0]}`."

    def applies_to(self, kind: str) -> bool:
        return not self.read_by or kind in self.read_by


_LOSSES = (
    "ce", "balanced-softmax", "logit-adjusted", "focal", "ldam", "ls", "mbls", "acls", "flsd53", "dual-focal",
    "adafocal", "ecp", "mmce", "mdca", "cpc", "crl", "vace", "fedlas-ls", "fedlas-mbls",
)  # fmt: skip
_KINDS = ("linear", "logistic", "mlp", "cosine", "arcface", "ncm", "lda", "prototype", "map")
_WEIGHTED = (*TRAINED, "logistic")
_S = Switch

# fmt: off
SECTIONS: dict[str, tuple[Switch, ...]] = {
    "Head": (
        _S("head.kind", "Kind", "linear", "The classifier on top of the frozen features. Recommended on long tails: "
           "cosine with a total prior of 1.5; ncm (nearest class mean) and lda need no training.", _KINDS),
        _S("head.hidden", "Hidden layers", "512", "Widths, separated by commas. Recommended: 512.", text="numbers",
           read_by=("mlp",)),
        _S("head.activation", "Activation", "relu", "gelu_ln is LayerNorm, then GELU.", ("relu", "gelu", "gelu_ln"),
           read_by=("mlp",)),
        _S("head.dropout", "Dropout", 0.0, "On each hidden layer. Recommended with few images: 0.2.",
           limits=(0.0, 0.9, 0.05), read_by=("mlp",)),
        _S("head.scale", "Scale", 16.0, "s of s · cos. Recommended: 16.", limits=(1.0, 64.0, 1.0),
           read_by=("cosine", "arcface", "ncm")),
        _S("head.margin", "ArcFace margin", 0.5, "Angle, in radians, by which the right class must win. "
           "Recommended: 0.5; less where classes are few.", limits=(0.0, 1.0, 0.05), read_by=("arcface",)),
        _S("head.heads", "Attention heads", 8, "Of the attention pooling over patches.", limits=(1, 16, 1),
           read_by=("map",)),
        _S("head.temperature", "Prototype temperature", 0.1, "Divides the cosine to each prototype.",
           limits=(0.02, 1.0, 0.02), read_by=("prototype",)),
        _S("head.l2", "Penalty", 0.001, "0.5 · l2 · |W|² of logistic regression.", limits=(0.0, 0.1, 0.0005),
           read_by=("logistic",)),
        _S("head.metric", "Distance", "euclidean", "To the class means.", ("euclidean", "cosine"), read_by=("ncm",)),
        _S("head.prior_rows", "Prior rows", 0.0, "Pulls each class mean to the common mean, as if by so many rows "
           "more.", limits=(0.0, 50.0, 1.0), read_by=("ncm", "lda")),
        _S("head.shrinkage", "Shrinkage", 0.5, "Of the covariance, towards a sphere.", limits=(0.0, 1.0, 0.05),
           read_by=("lda",)),
        _S("head.shrinkage:how", "Shrinkage set", BY_HAND, "By the slider, or by the formula of Ledoit and Wolf.",
           (BY_HAND, "ledoit-wolf"), read_by=("lda",)),
        _S("head.between", "Shrink class means", 0.0, "Share of the scatter of class means that is taken as real; each "
           "direction is shrunk by it. 0: not at all.", limits=(0.0, 2.0, 0.05), read_by=("lda",)),
    ),
    "Features": (
        _S("input.transform", "Transform", "none", "Recommended: standardise (each feature to mean 0 and variance 1 "
           "over the training rows).", ("none", "center", "standardise", "l2")),
        _S("input.power", "Power", 1.0, "sign(f) |f|^power before anything else; 0.5 tames heavy tails.",
           limits=(0.1, 2.0, 0.1)),
        _S("augment.noise", "Feature noise", 0.0, "Standard deviation of added noise, as a share of each feature's "
           "own. Recommended, if any: 0.1 to 0.3.", limits=(0.0, 2.0, 0.05), read_by=TRAINED),
        _S("augment.channel_scale", "Channel scaling", 0.0, "Each channel of a row times a factor from 1 - s to 1 + s.",
           limits=(0.0, 1.0, 0.05), read_by=TRAINED),
        _S("augment.mixup", "Manifold mixup", 0.0, "a of Beta(a, a): mixes rows and their labels. Recommended, if any: "
           "0.2 to 2.", limits=(0.0, 4.0, 0.1), read_by=TRAINED),
        _S("augment.mixup_layer", "Mixup at", "input", "The features, or the hidden layer.", ("input", "hidden"),
           read_by=HIDDEN),
        _S("augment.smote", "SMOTE", 0.0, "Fills every class up to this share of the largest, with points between "
           "neighbours.", limits=(0.0, 1.0, 0.05)),
        _S("augment.smote_neighbours", "SMOTE neighbours", 5, "Nearest rows of the class to draw from.",
           limits=(1, 20, 1)),
        _S("augment.head_tail", "Head-tail mixing", 0.0, "Share of tail rows that are moved towards a row of a common "
           "class, keeping the tail's label.", limits=(0.0, 1.0, 0.05), read_by=TRAINED),
        _S("augment.head_tail_lam", "Head-tail, most", 0.3, "Largest share of the common class's row.",
           limits=(0.0, 1.0, 0.05), read_by=TRAINED),
    ),
    "Loss": (
        _S("loss.name", "Loss", "ce", "ce is cross-entropy. balanced-softmax and logit-adjusted correct the prior in "
           "training; then leave the logit adjustment after training at 0, or both correct it. A logistic head takes "
           "these two alone.", _LOSSES, read_by=_WEIGHTED),
        _S("loss.options", "Options of the loss", "", "Settings of the chosen loss, separated by commas, e.g. gamma=2.",
           text="settings", read_by=_WEIGHTED),
        _S("loss.label_smoothing", "Label smoothing", 0.0, "Share of the target that is spread over all classes. "
           "Recommended, if any: 0.05 to 0.1.", limits=(0.0, 0.5, 0.01), read_by=_WEIGHTED),
        _S("loss.class_weights", "Class weights", "none", "By the number of training rows: 1/n, 1/sqrt(n), or the "
           "effective number.", ("none", "inverse", "sqrt", "effective"), read_by=_WEIGHTED),
        _S("loss.weights_beta", "Effective number, beta", 0.9999, "(1 - beta^n) / (1 - beta).",
           limits=(0.9, 0.9999, 0.0001), read_by=_WEIGHTED),
        _S("loss.weights_from", "Weights set in after", 0.0, "Share of the epochs before the weights set in.",
           limits=(0.0, 1.0, 0.05), read_by=TRAINED),
        _S("loss.hard_share", "Share of hard rows kept", 1.0, "Keeps the rows of a batch with the largest loss.",
           limits=(0.1, 1.0, 0.05), read_by=TRAINED),
        _S("loss.hard_from", "Hard rows set in after", 0.2, "Share of the epochs before that sets in.",
           limits=(0.0, 1.0, 0.05), read_by=TRAINED),
        _S("auxiliary.name", "Auxiliary loss", "none", "On the hidden features, beside the main loss: supervised "
           "contrastive (SupCon) losses, centre or prototype loss.",
           ("none", "supcon", "balanced-contrastive", "weighted-supcon", "center", "prototype"), read_by=HIDDEN),
        _S("auxiliary.weight", "SupCon weight", 0.5, "Of the auxiliary loss beside the main one.",
           limits=(0.0, 4.0, 0.05), read_by=HIDDEN),
        _S("auxiliary.temperature", "SupCon temperature", 0.1, "Of the contrastive losses and prototypes; lower is "
           "sharper.", limits=(0.02, 1.0, 0.02), read_by=HIDDEN),
        _S("auxiliary.projection", "Projection", 128, "Width of the projection that the contrastive losses see; 0: "
           "none.", limits=(0, 512, 16), read_by=HIDDEN),
        _S("auxiliary.options", "Options of the auxiliary loss", "", "Its settings, separated by commas, e.g. rate=0.5 "
           "for center.", text="settings", read_by=HIDDEN),
    ),
    "Training": (
        _S("optimizer.epochs", "Epochs", 60, "Passes over the training rows; the head takes seconds.",
           limits=(1, 300, 1)),
        _S("optimizer.name", "Optimiser", "adamw", "", ("adamw", "sgd")),
        _S("optimizer.lr", "Learning rate", 0.003, "Recommended: 3e-3 for a linear head, 1e-3 for an mlp.",
           limits=(0.0001, 0.03, 0.0001)),
        _S("optimizer.weight_decay", "Weight decay", 0.01, "Pulls the weights to 0.", limits=(0.0, 0.3, 0.005)),
        _S("optimizer.momentum", "Momentum", 0.9, "Of sgd.", limits=(0.0, 0.99, 0.01)),
        _S("optimizer.batch_size", "Batch size", 128, "Rows a step.", limits=(16, 1024, 16)),
        _S("optimizer.schedule", "Learning rate over time", "onecycle", "", ("onecycle", "cosine", "constant")),
        _S("sampling.name", "Sampling", "random", "balanced draws every class equally often, sqrt between the two.",
           ("random", "balanced", "sqrt"), read_by=TRAINED),
        _S("ema.decay", "Average of the weights", 0.0, "Exponential moving average. Recommended, if any: 0.99.",
           limits=(0.0, 0.999, 0.001), read_by=TRAINED),
        _S("crt.epochs", "Second phase, epochs", 0, "cRT: a new last layer on class-balanced rows, the rest frozen.",
           limits=(0, 60, 1), read_by=TRAINED),
        _S("crt.lr", "Second phase, learning rate", 0.0, "0: as in the first phase.", limits=(0.0, 0.03, 0.0001),
           read_by=TRAINED),
        _S("ensemble.heads", "Heads averaged", 1, "Heads that differ by seed alone, averaged into one.",
           limits=(1, 20, 1), read_by=_MATRIX),
        _S("seed", "Seed", 0, "Of everything random.", limits=(0, 20, 1)),
    ),
    "After training": (
        _S("posthoc.adjust", "Logit adjustment", 0.0, "Subtracts so many log prior from the logits: 1 is Bayes, 1.5 is "
           "often best for macro-F1 on small noisy tails. Recommended for long tails: 1.", limits=(0.0, 3.0, 0.05)),
        _S("posthoc.adjust:how", "Logit adjustment set", BY_HAND, "By the slider; auto: best macro-F1 on validation "
           "rows; likelihood: fitted together with the temperature.", (BY_HAND, "auto", "likelihood")),
        _S("posthoc.temperature", "Temperature", "none", "Fitted on validation rows. Recommended: global.",
           ("none", "global", "per-class")),
        _S("posthoc.redraws", "Redraws", 0, "Fits these on so many more divisions of the same images into training and "
           "validation as well.", limits=(0, 10, 1)),
        _S("posthoc.recall", "Wanted recall", 0.0, "Shifts each class until its validation recall is at least this.",
           limits=(0.0, 0.99, 0.01)),
        _S("posthoc.precision", "Wanted precision", 0.0, "Or its precision; one of the two.",
           limits=(0.0, 0.99, 0.01)),
    ),
    "Data": (
        _S("data.imbalance", "Imbalance", 1.0, "Thins the classes so that the commonest has so many times the images "
           "of the rarest; 1 takes all.", limits=(1.0, 200.0, 1.0)),
        _S("data.val_per_class", "Validation rows a class", 0, "Held out of the training rows; 0: the cache's own "
           "validation split, or the share below.", limits=(0, 50, 1)),
        _S("data.val_fraction", "Validation share", 0.2, "Where the cache has no validation split and no number a "
           "class is given.", limits=(0.05, 0.5, 0.05)),
        _S("data.order_seed", "Order of classes", 42, "Which classes are common and which rare, when they are thinned.",
           limits=(0, 100, 1)),
        _S("data.split_seed", "Division", -1, "Which rows are held out and kept; -1: as the seed says.",
           limits=(-1, 20, 1)),
        _S("data.train_views", "Views to train on", "eval", "Of those that the cache holds, separated by commas; each "
           "view of an image is a row of its own.", text="names"),
        _S("data.test_views", "Views to average", "eval", "Features are averaged over these when the head is measured.",
           text="names"),
        _S("data.background", "Background class", "", "A class that macro F1 without background leaves out.",
           text="name"),
    ),
}
# What is reached for first, in the order of reading; the page shows the others folded away by section.
MAIN = (
    "head.kind", "loss.name", "posthoc.adjust", "head.margin", "auxiliary.name", "augment.noise",
    "head.scale", "auxiliary.weight", "augment.mixup", "posthoc.temperature", "auxiliary.temperature",
    "optimizer.epochs",
)
# fmt: on
ALL = {switch.key: switch for section in SECTIONS.values() for switch in section}


def settings(values: Mapping[str, Value]) -> list[str]:
    """What differs from the defaults and is read by the chosen kind of head, as `--set` takes it."""
    kind = str(values.get("head.kind", "linear"))
    words = {key.partition(":")[0] for key, value in values.items() if ":" in key and value != BY_HAND}
    found: list[str] = []
    for key, value in values.items():
        switch = ALL[key]
        if value == switch.default or not switch.applies_to(kind) or key in words:
            continue
        if switch.text == "settings":
            found += [f"{key.partition('.')[0]}.{name}={v}" for name, v in _pairs(str(value), switch)]
        else:
            found.append(f"{key.partition(':')[0]}={_toml(value, switch)}")
    return found


def _toml(value: Value, switch: Switch) -> str:
    parts = [part.strip() for part in str(value).split(",") if part.strip()]
    if switch.text == "numbers":
        if not all(part.isdecimal() for part in parts):
            raise ConfigError(
                f'"{value}" is not a list of whole numbers', where=switch.key, fix="write for example 512"
            )
        return json.dumps([int(part) for part in parts])
    return json.dumps(parts if switch.text == "names" else value)


def _pairs(text: str, switch: Switch) -> list[tuple[str, str]]:
    """name=value, name=value; a value that is no number, truth value or quoted text is a word."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not name.replace("_", "").isalnum() or not value:
            raise ConfigError(f'"{part}" is not name=value', where=switch.key, fix="write for example gamma=2")
        try:
            json.loads(value)
        except ValueError:
            value = json.dumps(value)
        found.append((name, value))
    return found


def describe(values: Mapping[str, Value]) -> str:
    """The same for people."""
    kind = str(values.get("head.kind", "linear"))
    changed = [
        f"{ALL[k].label} {v}" for k, v in values.items() if v != ALL[k].default and ALL[k].applies_to(kind)
    ]  # fmt: skip
    return ", ".join(changed) or "all switches off"


def to_link(values: Mapping[str, Value]) -> str:
    """What was changed, for the address of the page."""
    return json.dumps({k: v for k, v in values.items() if v != ALL[k].default}, separators=(",", ":"))


def from_link(text: str) -> dict[str, Value] | None:
    """The values of such an address; None where it names what is not there or cannot be."""
    try:
        block = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(block, dict) or not all(k in ALL and _possible(ALL[k], v) for k, v in block.items()):
        return None
    return {k: float(v) if isinstance(ALL[k].default, float) else v for k, v in block.items()}


def _possible(switch: Switch, value: object) -> bool:
    if switch.options:
        return value in switch.options
    if switch.limits is None:
        return isinstance(value, str) and len(value) <= 500
    whole = isinstance(switch.default, int)
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    return number and switch.limits[0] <= value <= switch.limits[1]  # type: ignore[operator]
