"""The numbers by which heads are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.metrics import accuracy, adaptive_ece, ece, nll
from calibrant.shares import thirds

# In the order of the tables; True: larger is better.
METRICS: dict[str, bool] = {
    "macro_f1": True, "macro_f1_fg": True, "weighted_f1": True, "weighted_f1_fg": True,
    "balanced_accuracy": True, "accuracy": True,
    "macro_precision": True, "macro_recall": True, "head_accuracy": True, "medium_accuracy": True,
    "tail_accuracy": True, "nll": False, "ece": False, "aece": False,
}  # fmt: skip
GROUPED = ("head_accuracy", "medium_accuracy", "tail_accuracy")


_EVALUATED = {"aece": "adaptive_ece"}  # names of `evaluate`, where they differ


def intervals(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, tuple[float, float]]:
    """95 % intervals of the metrics that `calibrant evaluate` gives one, by the names here. Rows of one group err
    together, which these do not know: with few groups they are too narrow."""
    from calibrant.calibration.evaluation import evaluate

    known = labels >= 0
    found = evaluate(probs[known], labels[known]).metrics if known.any() else {}
    measured = {name: found[key] for name in METRICS if (key := _EVALUATED.get(name, name)) in found}
    return {name: (m.low, m.high) for name, m in measured.items() if m.low is not None and m.high is not None}


def measure(
    probs: NDArray[np.float64],
    labels: NDArray[np.int64],
    train_counts: NDArray[np.int64],
    *,
    background: int | None = None,
) -> dict[str, float]:
    """All metrics of one set. probs: (N, C).

    Per class k: precision P, recall R (0 where nothing was predicted or present), F = 2 TP / (predicted + present).
    macro: mean over the classes that occur in the labels or the predictions; balanced accuracy and the group
    accuracies: mean recall over the classes that occur in the labels. head, medium, tail: thirds of the classes by
    training images. macro_f1_fg and weighted_f1_fg leave the background class out of the mean, not out
    of the predictions.
    """
    classes = probs.shape[1]
    predicted = probs.argmax(1)
    confusion = np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    hit = np.diag(confusion).astype(np.float64)
    present, claimed = confusion.sum(1), confusion.sum(0)
    precision = hit / np.maximum(claimed, 1)
    recall = hit / np.maximum(present, 1)
    f = 2 * hit / np.maximum(present + claimed, 1)
    occurs, labelled = (present + claimed) > 0, present > 0
    foreground = occurs.copy()
    if background is not None:
        foreground[background] = False

    def mean(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> float:
        return float(values[mask].mean()) if mask.any() else 0.0

    groups = {}
    for name, members in thirds(train_counts.tolist()).items():
        mask = np.zeros(classes, bool)
        mask[list(members)] = True
        groups[f"{name}_accuracy"] = mean(recall, mask & labelled)
    return {
        "macro_f1": mean(f, occurs),
        "macro_f1_fg": mean(f, foreground),
        "weighted_f1": float((f * present).sum() / present.sum()),
        "weighted_f1_fg": float((f * present)[foreground].sum() / max(int(present[foreground].sum()), 1)),
        "balanced_accuracy": mean(recall, labelled),
        "accuracy": accuracy(probs, labels),
        "macro_precision": mean(precision, occurs),
        "macro_recall": mean(recall, occurs),
        **groups,
        "nll": nll(probs, labels, floor=1e-12),
        "ece": ece(probs, labels),
        "aece": adaptive_ece(probs, labels),
    }
