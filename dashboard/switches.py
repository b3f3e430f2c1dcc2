"""The switches of `calibrant head`, as the Laboratory offers them: what each does, its range, its default.

Off by default, all of them. A test holds keys and defaults to the configuration that the command reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

Value = bool | int | float | str


@dataclass(frozen=True)
class Switch:
    """`options` makes a choice, `limits` a slider (whole numbers where all three are whole)."""

    key: str  # table.key, as --set takes it
    label: str
    default: Value
    help: str
    options: tuple[str, ...] = ()
    limits: tuple[float, float, float] | None = None  # low, high, step


_LOSSES = (
    "ce", "balanced-softmax", "focal", "ldam", "ls", "mbls", "acls", "dual-focal", "adafocal", "ecp", "mmce", "mdca",
    "crl", "vace", "fedlas-ls", "fedlas-mbls",
)  # fmt: skip

SECTIONS: dict[str, tuple[Switch, ...]] = {
    "Head": (
        Switch(
            "head.kind",
            "Kind",
            "linear",
            "The classifier on top of the frozen features. cosine and a total prior of 1.5 did best "
            "on long tails; ncm (nearest class mean) needs no training.",
            ("linear", "logistic", "mlp", "cosine", "arcface", "ncm", "lda", "prototype", "map"),
        ),
        Switch(
            "head.scale",
            "Scale of cosine and ArcFace",
            16.0,
            "s of s * cos. 16 suits normalised features.",
            limits=(1.0, 64.0, 1.0),
        ),
        Switch(
            "head.margin",
            "ArcFace margin",
            0.5,
            "Angle, in radians, that the right class must win by. For arcface.",
            limits=(0.0, 1.0, 0.05),
        ),
        Switch(
            "head.dropout",
            "Dropout",
            0.0,
            "Of the hidden layers of an mlp.",
            limits=(0.0, 0.9, 0.05),
        ),
        Switch(
            "head.activation",
            "Activation",
            "relu",
            "Of an mlp; gelu_ln is LayerNorm, then GELU.",
            ("relu", "gelu", "gelu_ln"),
        ),
        Switch(
            "head.shrinkage",
            "Shrinkage",
            0.5,
            "Of the covariance of lda.",
            limits=(0.0, 1.0, 0.05),
        ),
        Switch(
            "head.prior_rows",
            "Prior rows",
            0.0,
            "Pulls the class means of ncm and lda to the common mean, as if by so many rows.",
            limits=(0.0, 50.0, 1.0),
        ),
    ),
    "Features": (
        Switch(
            "input.transform",
            "Transform",
            "none",
            "Recommended: standardise (each feature to mean 0 and variance 1 over the training rows).",
            ("none", "center", "standardise", "l2"),
        ),
        Switch(
            "input.power",
            "Power",
            1.0,
            "sign(f) |f|^power before anything else; 0.5 tames heavy tails.",
            limits=(0.1, 2.0, 0.1),
        ),
        Switch(
            "augment.noise",
            "Feature noise",
            0.0,
            "Standard deviation of added noise, as a share of each feature's own. Try 0.1 to 0.3.",
            limits=(0.0, 2.0, 0.05),
        ),
        Switch(
            "augment.channel_scale",
            "Channel scaling",
            0.0,
            "Each channel of a row times a factor from 1 - s to 1 + s.",
            limits=(0.0, 1.0, 0.05),
        ),
        Switch(
            "augment.mixup",
            "Manifold mixup",
            0.0,
            "a of Beta(a, a): mixes rows and their labels. Try 0.2 to 2.",
            limits=(0.0, 4.0, 0.1),
        ),
        Switch(
            "augment.mixup_layer",
            "Mixup at",
            "input",
            "hidden needs an mlp or map head.",
            ("input", "hidden"),
        ),
        Switch(
            "augment.smote",
            "SMOTE",
            0.0,
            "Fills every class up to this share of the largest, with points between neighbours.",
            limits=(0.0, 1.0, 0.05),
        ),
        Switch(
            "augment.head_tail",
            "Head-tail mixing",
            0.0,
            "Share of tail rows that are moved towards a row of a common class.",
            limits=(0.0, 1.0, 0.05),
        ),
    ),
    "Loss": (
        Switch(
            "loss.name",
            "Loss",
            "ce",
            "balanced-softmax corrects the prior in training; then leave the logit adjustment below "
            "at 0, or both correct it.",
            _LOSSES,
        ),
        Switch(
            "loss.label_smoothing",
            "Label smoothing",
            0.0,
            "Share of the target that is spread over all classes.",
            limits=(0.0, 0.5, 0.01),
        ),
        Switch(
            "loss.class_weights",
            "Class weights",
            "none",
            "inverse and sqrt of the class count, or the effective number.",
            ("none", "inverse", "sqrt", "effective"),
        ),
        Switch(
            "loss.hard_share",
            "Share of hard rows kept",
            1.0,
            "Keeps the rows of a batch with the largest loss.",
            limits=(0.1, 1.0, 0.05),
        ),
        Switch(
            "auxiliary.name",
            "Auxiliary loss",
            "none",
            "On the hidden features of an mlp or map head: supervised contrastive losses, centre or prototype loss.",
            ("none", "supcon", "balanced-contrastive", "weighted-supcon", "center", "prototype"),
        ),
        Switch(
            "auxiliary.weight",
            "Weight of it",
            0.5,
            "Of the auxiliary loss beside the main one.",
            limits=(0.0, 4.0, 0.05),
        ),
        Switch(
            "auxiliary.temperature",
            "SupCon temperature",
            0.1,
            "Of the contrastive losses; lower is sharper.",
            limits=(0.02, 1.0, 0.02),
        ),
    ),
    "Training": (
        Switch(
            "optimizer.epochs",
            "Epochs",
            60,
            "Passes over the training rows; the head takes seconds.",
            limits=(1, 300, 1),
        ),
        Switch(
            "optimizer.lr",
            "Learning rate",
            0.003,
            "3e-3 suits a linear head, 1e-3 an mlp.",
            limits=(0.0001, 0.03, 0.0001),
        ),
        Switch(
            "optimizer.weight_decay",
            "Weight decay",
            0.01,
            "Of AdamW.",
            limits=(0.0, 0.3, 0.005),
        ),
        Switch(
            "sampling.name",
            "Sampling",
            "random",
            "balanced draws every class equally often.",
            ("random", "balanced", "sqrt"),
        ),
        Switch(
            "ema.decay",
            "Average of the weights",
            0.0,
            "Exponential moving average; 0.99 is usual.",
            limits=(0.0, 0.999, 0.001),
        ),
        Switch(
            "crt.epochs",
            "Second phase (cRT), epochs",
            0,
            "A new last layer on class-balanced rows, the rest frozen.",
            limits=(0, 60, 1),
        ),
        Switch(
            "seed",
            "Seed",
            0,
            "Of everything random.",
            limits=(0, 20, 1),
        ),
    ),
    "After training": (
        Switch(
            "posthoc.adjust",
            "Logit adjustment",
            0.0,
            "Subtracts so many log prior from the logits: 1 is Bayes, 1.5 often best for macro-F1 on "
            "small noisy tails. Recommended for long tails: 1.",
            limits=(0.0, 3.0, 0.05),
        ),
        Switch(
            "posthoc.temperature",
            "Temperature",
            "none",
            "Fitted on validation rows. Recommended: global.",
            ("none", "global", "per-class"),
        ),
        Switch(
            "posthoc.recall",
            "Wanted recall",
            0.0,
            "Shifts each class until its validation recall is at least this.",
            limits=(0.0, 0.99, 0.01),
        ),
        Switch(
            "posthoc.precision",
            "Wanted precision",
            0.0,
            "Or its precision; one of the two.",
            limits=(0.0, 0.99, 0.01),
        ),
    ),
    "Data": (
        Switch(
            "data.imbalance",
            "Imbalance",
            1.0,
            "Thins the classes so that the commonest has so many times the images of the rarest; 1 takes all.",
            limits=(1.0, 200.0, 1.0),
        ),
    ),
}
ALL = {switch.key: switch for section in SECTIONS.values() for switch in section}


def settings(values: Mapping[str, Value]) -> list[str]:
    """What differs from the defaults, as `--set` takes it."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items() if value != ALL[key].default]


def describe(values: Mapping[str, Value]) -> str:
    """The same for people."""
    changed = [f"{ALL[k].label} {v}" for k, v in values.items() if v != ALL[k].default]
    return ", ".join(changed) or "all switches off"
