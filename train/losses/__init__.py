"""Losses for calibration and long tails. `create_loss(name, ...)`, or import a class and use it in any loop.

loss = VACE(num_classes=200, feature_dim=2048)
loss(logits, target, features).backward()
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from torch import Tensor

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.losses.acls import ACLS
from calibrant.train.losses.base import BaseOptions, Loss, MixedTarget
from calibrant.train.losses.cross_entropy import CrossEntropy
from calibrant.train.losses.focal import FLSD53, Focal
from calibrant.train.losses.label_smoothing import LabelSmoothing
from calibrant.train.losses.mbls import MbLS
from calibrant.train.losses.vace import VACE

__all__ = [
    "ACLS",
    "FLSD53",
    "LOSSES",
    "VACE",
    "CrossEntropy",
    "Focal",
    "LabelSmoothing",
    "Loss",
    "MbLS",
    "MixedTarget",
    "create_loss",
]

LOSSES: dict[str, type[Loss]] = {
    "ce": CrossEntropy,
    "ls": LabelSmoothing,
    "mbls": MbLS,
    "acls": ACLS,
    "focal": Focal,
    "flsd53": FLSD53,
    "vace": VACE,
}


def create_loss(
    name: str,
    *,
    num_classes: int,
    feature_dim: int | None = None,
    class_counts: Sequence[int] | Tensor | None = None,
    **options: object,
) -> Loss:
    """The loss `name` with its options; what a loss does not need of feature_dim and class_counts it does not see."""
    if name not in LOSSES:
        raise ConfigError(f"there is no loss {name!r}", fix=did_you_mean(name, LOSSES))
    cls = LOSSES[name]
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
