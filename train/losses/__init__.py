"""Losses for calibration and long tails. `create_loss(name, ...)`, or import a class and use it in any loop.

loss = VACE(num_classes=200, feature_dim=2048)
loss(logits, target, features).backward()
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from calibrant import plugins
from calibrant.errors import ConfigError, did_you_mean
from calibrant.settings.losses import LOSSES as RECORDS
from calibrant.train.losses.combined import Combined
from calibrant.train.losses.cosine import CosineHead
from calibrant.train.losses.prior import (
    DoubleCorrectionWarning,
    effective_number_weights,
    log_prior,
    post_hoc_logits,
    total_correction,
)
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.plugin_loss import PluginLoss
from calibrant.train.losses.shared.target import MixedTarget

if TYPE_CHECKING:  # the classes come from the records; these lines tell editors and mypy their types
    from calibrant.train.losses.acls import ACLS
    from calibrant.train.losses.adafocal import AdaFocal
    from calibrant.train.losses.arcface import ArcFace
    from calibrant.train.losses.balanced_contrastive import BalancedContrastive
    from calibrant.train.losses.balanced_softmax import BalancedSoftmax
    from calibrant.train.losses.center import Center
    from calibrant.train.losses.cpc import CPC
    from calibrant.train.losses.crl import CRL
    from calibrant.train.losses.cross_entropy import CrossEntropy
    from calibrant.train.losses.dual_focal import DualFocal
    from calibrant.train.losses.ecp import ECP
    from calibrant.train.losses.fedlas import FeDLaSLS, FeDLaSMbLS
    from calibrant.train.losses.flsd53 import FLSD53
    from calibrant.train.losses.focal import Focal
    from calibrant.train.losses.label_smoothing import LabelSmoothing
    from calibrant.train.losses.ldam import LDAM
    from calibrant.train.losses.mbls import MbLS
    from calibrant.train.losses.mdca import MDCA
    from calibrant.train.losses.mmce import MMCE
    from calibrant.train.losses.prototype import Prototype
    from calibrant.train.losses.supcon import SupCon
    from calibrant.train.losses.vace import VACE

__all__ = [
    "ACLS",
    "CPC",
    "CRL",
    "ECP",
    "FLSD53",
    "LDAM",
    "LOSSES",
    "MDCA",
    "MMCE",
    "VACE",
    "AdaFocal",
    "ArcFace",
    "BalancedContrastive",
    "BalancedSoftmax",
    "Center",
    "Combined",
    "CosineHead",
    "CrossEntropy",
    "DoubleCorrectionWarning",
    "DualFocal",
    "FeDLaSLS",
    "FeDLaSMbLS",
    "Focal",
    "LabelSmoothing",
    "Loss",
    "MbLS",
    "MixedTarget",
    "Prototype",
    "SupCon",
    "create_loss",
    "effective_number_weights",
    "log_prior",
    "post_hoc_logits",
    "total_correction",
]


def _load(home: str) -> type[Loss]:
    module, _, name = home.partition(":")
    cls: type[Loss] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return cls


LOSSES: dict[str, type[Loss]] = {record.name: _load(record.home) for record in RECORDS.values()}
_CLASSES = {cls.__name__: cls for cls in LOSSES.values()}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _CLASSES[name]


def create_loss(
    name: str,
    *,
    num_classes: int,
    feature_dim: int | None = None,
    class_counts: Sequence[int] | Tensor | None = None,
    **options: object,
) -> Loss:
    """The loss `name` with its options; what a loss does not need of feature_dim and class_counts it does not see."""
    foreign = plugins.registered("losses").get(name)
    if foreign is not None and name not in LOSSES:
        if not (isinstance(foreign, type) and issubclass(foreign, Loss)):
            return PluginLoss(num_classes, name, foreign, dict(options), feature_dim, class_counts)
        return _made(name, foreign, num_classes, feature_dim, class_counts, options)
    if name not in LOSSES:
        known = {*LOSSES, *plugins.registered("losses")}
        raise ConfigError(f"there is no loss {name!r}", fix=did_you_mean(name, known))
    return _made(name, LOSSES[name], num_classes, feature_dim, class_counts, options)


def _made(
    name: str,
    cls: type[Loss],
    num_classes: int,
    feature_dim: int | None,
    class_counts: Sequence[int] | Tensor | None,
    options: dict[str, object],
) -> Loss:
    parameters = inspect.signature(cls).parameters
    given: dict[str, object] = {"feature_dim": feature_dim, "class_counts": class_counts}
    known = (set(parameters) | set(BaseOptions.__annotations__)) - {"num_classes", "options", *given}
    for option in options:
        if option not in known:
            raise ConfigError(f"loss {name} has no option {option!r}", fix=did_you_mean(option, known))
    for argument, value in given.items():
        if argument in parameters:
            if value is None and parameters[argument].default is inspect.Parameter.empty:
                raise ConfigError(f"loss {name} needs {argument}", fix=f"create_loss({name!r}, ..., {argument}=...)")
            if value is not None:
                options[argument] = value
    return cls(num_classes, **options)  # type: ignore[arg-type]
