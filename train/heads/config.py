"""A head's configuration from a TOML table and `--set`, checked; what can be set is in calibrant/settings/heads.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from calibrant.config import build, with_overrides
from calibrant.errors import ConfigError
from calibrant.settings.heads import (
    HIDDEN,
    KINDS,
    TRAINED,
    AuxiliaryConfig,
    HeadAugmentConfig,
    HeadConfig,
    HeadKind,
    HeadLossConfig,
)
from calibrant.settings.option import options_of


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


def sections(config: HeadConfig) -> list[tuple[str, Any]]:
    """The tables of a configuration by name."""
    return [(f.name, getattr(config, f.name)) for f in fields(config) if is_dataclass(getattr(config, f.name))]


def check(config: HeadConfig, where: str | Path) -> None:
    """Values of the right type without a meaning, and switches that could change nothing: both are refused."""
    for section, table in sections(config):
        for key, described in options_of(table).items():
            value = getattr(table, key)
            if described.allowed is None or value is None or isinstance(value, str):
                continue
            low, high = described.allowed
            if not low <= value <= high:
                name = f"{section}.{key}"
                raise ConfigError(f"{name} is {value:g}, but must be from {low:g} to {high:g}", where=where)
    for name in ("train_views", "test_views"):
        if not getattr(config.data, name):
            raise ConfigError(f"data.{name} is empty", where=where, fix='use ["eval"]')
    if config.posthoc.recall and config.posthoc.precision:
        raise ConfigError("posthoc.recall and posthoc.precision both move the class shifts", where=where, fix="set one")
    _check_loss(config.loss)
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
    for name, described in options_of(plain).items():
        kinds = described.read_by or KINDS
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
