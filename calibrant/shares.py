"""What is worked out from class priors: shares, the log ratio of the one formula, row weights, head and tail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
TARGET_FLOOR = 1e-12  # a class that cannot occur in use gets a probability of about this, not a NaN


def shares(prior: ArrayLike, *, name: str = "prior", classes: int | None = None, smooth: float = 0.0) -> Vector:
    """Shares or counts as shares that add up to one; `smooth` is added to each count first."""
    values = np.asarray(prior, np.float64)
    if values.ndim != 1 or len(values) == 0 or (classes is not None and len(values) != classes):
        what = "one share for each class" if classes is None else f"{classes} shares"
        raise ConfigError(f"the {name} must be {what}, got shape {values.shape}")
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() + smooth <= 0:
        raise ConfigError(f"the {name} must be {len(values)} shares that are not negative and not all 0")
    values = values + smooth
    share: Vector = values / values.sum()
    return share


def log_prior_ratio(
    train: ArrayLike, target: ArrayLike | None = None, *, smooth: float = 0.0, class_names: Sequence[str] | None = None
) -> Vector:
    """r = log(pi_train / pi_target) for each class; the target is uniform unless given. Shares or counts will do.

    A class of training prior 0 has no ratio and is refused; `smooth=1` adds one to each count instead (give counts
    then, not shares). One of target prior 0 does not occur in use: it counts as 1e-12, which rules it out.
    """
    pi_train = shares(train, name="training prior", smooth=smooth)
    pi_target = (
        np.full(len(pi_train), 1.0 / len(pi_train))
        if target is None
        else shares(target, name="target prior", smooth=smooth)
    )
    if len(pi_train) != len(pi_target):
        raise ConfigError(f"the training prior has {len(pi_train)} classes and the target prior {len(pi_target)}")
    check_positive(pi_train, class_names)
    ratio: Vector = np.log(pi_train) - np.log(np.maximum(pi_target, TARGET_FLOOR))
    return ratio


def check_positive(train: Vector, class_names: Sequence[str] | None = None) -> None:
    """Refuses a training prior with a 0 in it, whose logarithm no correction can use."""
    empty = np.flatnonzero(train == 0)
    if not len(empty):
        return
    names = [f"class {k}" if class_names is None else class_names[k] for k in empty[:5].tolist()]
    raise ConfigError(
        f"the training prior of {', '.join(names)} is 0, which no correction can use",
        fix="give --prior-floor 1e-4 or smooth=1, or leave the class out",
    )


def class_weights(data: ArrayLike, target: ArrayLike | None = None) -> Vector:
    """pi_target(k) / pi_data(k) for each class; one that the data have not may only be absent in the target too."""
    have = shares(data, name="data prior")
    wanted = np.full(len(have), 1.0 / len(have)) if target is None else shares(target, name="target prior")
    if len(have) != len(wanted):
        raise ConfigError(f"the data prior has {len(have)} classes and the target prior {len(wanted)}")
    lost = np.flatnonzero((have == 0) & (wanted > 0))
    if len(lost):
        raise ConfigError(
            f"class {int(lost[0])} has no share in the data but {wanted[lost[0]]:.3g} in the target prior",
            fix="no weight can make up for a class without rows; give it target prior 0",
        )
    weights: Vector = np.divide(wanted, have, out=np.zeros_like(have), where=have > 0)
    return weights


def thirds(prior: Iterable[float]) -> dict[str, tuple[int, ...]]:
    """Classes as head, medium and tail by their share of the training images, ties in order of class.

    Cut at round(C / 3) and round(2 C / 3): head and tail always hold equally many classes (3, 4, 3 of ten), so that
    what stands between them is never a matter of how many classes were averaged.
    """
    order = np.argsort(-np.asarray(list(prior), np.float64), kind="stable")
    first, second = round(len(order) / 3), round(2 * len(order) / 3)
    parts = {"head": order[:first], "medium": order[first:second], "tail": order[second:]}
    return {name: tuple(sorted(part.tolist())) for name, part in parts.items()}


def head_medium_tail(prior: Iterable[float] | None) -> dict[str, tuple[int, ...]]:
    """`thirds` where there is a tail to speak of: three classes or more, the largest at least twice the smallest."""
    share = [] if prior is None else list(prior)
    return {} if len(share) < 3 or max(share) < 2 * min(share) else thirds(share)
