"""What a run keeps of every test row, and the metrics as means of one number a row.

For each row: its label, the predicted class, its confidence, NLL and Brier score, as base64 of little-endian arrays in
the run's JSON file. Runs of earlier versions have neither confidence nor Brier score.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.metrics.binned_errors import ece_terms
from calibrant.shares import thirds

Vector = NDArray[np.float64]
_PACKED = {"labels": "<i4", "predicted": "<i4", "nll": "<f4", "confidence": "<f4", "brier": "<f4"}


def pack_rows(
    probs: Vector, labels: NDArray[np.int64], counts: NDArray[np.int64], background: int | None
) -> dict[str, Any]:
    """counts: (C,) training images of the run, which say what head, medium and tail are."""
    own = probs[np.arange(len(labels)), labels]
    values = {
        "labels": labels, "predicted": probs.argmax(1), "nll": -np.log(np.maximum(own, 1e-12)),
        "confidence": probs.max(1), "brier": np.einsum("ij,ij->i", probs, probs) - 2 * own + 1,
    }  # fmt: skip
    packed = {
        name: base64.b64encode(np.asarray(values[name], kind).tobytes()).decode() for name, kind in _PACKED.items()
    }
    return {**packed, "counts": counts.tolist(), "background": background}


def row_values(metric: str, block: Mapping[str, Any]) -> Vector | None:
    """(n,) whose mean is the metric, or its value to first order (macro F1, ECE); None where it is no such mean.

    balanced accuracy and groups: n correct_i / (K n_y). Macro F1: F + n sum_c infl_ic / K with infl_ic =
    (2 [y = c, k = c] - F_c ([y = c] + [k = c])) / (present_c + predicted_c), the derivative of F_c by the row's weight.
    Weighted F1 W = sum_c present_c F_c / P: W + n (F_y - W + sum_c present_c infl_ic) / P.
    """
    y, k = _read(block, "labels"), _read(block, "predicted")
    n, counts = len(y), np.asarray(block["counts"], np.int64)
    right: Vector = (y == k).astype(np.float64)
    if metric == "accuracy":
        return right
    if metric in ("nll", "brier"):
        return _read(block, metric).astype(np.float64) if metric in block else None
    if metric == "ece":
        return ece_terms(_read(block, "confidence"), y == k) if "confidence" in block else None
    present, claimed = np.bincount(y, minlength=len(counts)), np.bincount(k, minlength=len(counts))
    if metric in ("balanced_accuracy", "head_accuracy", "medium_accuracy", "tail_accuracy"):
        inside = present > 0
        if metric != "balanced_accuracy":
            mask = np.zeros(len(counts), bool)
            mask[list(thirds(counts.tolist())[metric.removesuffix("_accuracy")])] = True
            inside &= mask
        values: Vector = n * right * inside[y] / (max(1, int(inside.sum())) * present[y])
        return values
    if metric in ("macro_f1", "macro_f1_fg", "weighted_f1", "weighted_f1_fg"):
        total = present + claimed
        shown = total > 0
        if metric.endswith("_fg") and block["background"] is not None:
            shown[block["background"]] = False
        hit = np.bincount(y[y == k], minlength=len(counts))
        f = 2 * hit / np.maximum(total, 1)
        each = np.where(shown, 1.0 / np.maximum(total, 1), 0.0)
        if metric.startswith("weighted"):
            weight = np.where(shown, present, 0)
            mean = float((weight * f).sum()) / max(1, int(weight.sum()))
            share = weight * each
            moved = shown[y] * (f[y] - mean) + 2 * right * share[y] - f[y] * share[y] - f[k] * share[k]
            weighted: Vector = mean + n * moved / max(1, int(weight.sum()))
            return weighted
        influence = 2 * right * each[y] - f[y] * each[y] - f[k] * each[k]
        result: Vector = float(f[shown].mean()) + n * influence / max(1, int(shown.sum()))
        return result
    return None


def differences(metric: str, run: Sequence[Any], base: Sequence[Any]) -> Vector | None:
    """(S, n) differences of row values, seed by seed; None where a run keeps no rows or the rows are not the same."""
    pairs = list(zip(run, base, strict=True))
    if not pairs or any(a is None or b is None for a, b in pairs):
        return None
    labels = pairs[0][0]["labels"]
    if any(block["labels"] != labels for pair in pairs for block in pair):
        return None
    values = [(row_values(metric, a), row_values(metric, b)) for a, b in pairs]
    if any(a is None or b is None for a, b in values):
        return None
    return np.stack([a - b for a, b in values if a is not None and b is not None])


def _read(block: Mapping[str, Any], name: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(block[name]), _PACKED[name])
