"""A loss of a plugin that is none of ours: any module, or a function of (logits, labels)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels

_GIVEN = ("num_classes", "feature_dim", "class_counts")


class PluginLoss(Loss):
    """rows = inner(logits, labels), or inner(logits, labels, features) where it has such an argument.

    It may give a loss for each row, or their mean. Mixed labels come as probabilities (N, C). num_classes, feature_dim
    and class_counts are handed to a constructor that names them.
    """

    def __init__(
        self,
        num_classes: int,
        name: str,
        make: Any,
        options: dict[str, object],
        feature_dim: int | None = None,
        class_counts: Sequence[int] | Tensor | None = None,
    ) -> None:
        ours = {key: options.pop(key) for key in list(options) if key in BaseOptions.__annotations__}
        super().__init__(num_classes, **ours)  # type: ignore[arg-type]
        self.name = name
        given = {"num_classes": num_classes, "feature_dim": feature_dim, "class_counts": class_counts}
        if inspect.isclass(make):
            self.inner: Any = make(**_accepted(name, make, {**given, **options}, options))
            call: Any = self.inner.forward if isinstance(self.inner, nn.Module) else self.inner
            self._more: dict[str, Any] = {}
        else:
            self.inner = call = make
            self._more = _accepted(name, make, {**given, **options}, options)
        known = inspect.signature(call).parameters
        self.needs_features = "features" in known
        self.features_carry_gradient = self.needs_features

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        labels = target.mass(self.num_classes, z.dtype) if target.hard is None else target.hard
        more = {**self._more, **({"features": features} if self.needs_features else {})}
        found = self.inner(z, labels, **more)
        if not isinstance(found, Tensor) or found.shape not in ((), (len(z),)):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ConfigError(
                f"gave {shape}, expected a loss for each of {len(z)} rows, or their mean", where=self.name
            )
        if found.ndim == 0 and (self.reduction != "mean" or self.keep_hardest < 1):
            raise ConfigError("gives one number for all rows, of which none can be chosen or summed", where=self.name)
        return found if found.ndim else found.expand(len(z))


def _accepted(name: str, make: Any, values: dict[str, Any], options: dict[str, object]) -> dict[str, Any]:
    """What it names of the values; an option that it does not name is a mistake."""
    parameters = inspect.signature(make).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return {k: v for k, v in values.items() if k in parameters or k in options}
    strange = next((key for key in options if key not in parameters), None)
    if strange is not None:
        own = [key for key in parameters if key not in (*_GIVEN, "features")]
        raise ConfigError(f"loss {name} has no option {strange!r}", fix=did_you_mean(strange, own) if own else None)
    return {k: v for k, v in values.items() if k in parameters}
