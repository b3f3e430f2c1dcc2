"""A linear head on the frozen pretrained network: what training has to beat, and the classifier it may start from.

Fine-tuning on few images often ends below a head that is solved in a second on the features of the pretrained network
(docs/training.md), so that head is a candidate: it is kept unless training ends with a lower NLL on the
validation images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant.calibration.calibrators.temperature import minimise_nll
from calibrant.calibration.softmax import log_softmax
from calibrant.train.evaluate import EvalSource, run_network
from calibrant.train.heads.training.solve import discriminant, logistic
from calibrant.train.losses.shared.loss import Loss
from calibrant.train.model.feature_model import FeatureModel

_Fit = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]

FOLDS = 5
_L2 = (3e-2, 3e-1)  # of the logistic candidates
_SHRINKAGE, _BETWEEN = 0.8, 0.15  # of the discriminant


@dataclass(frozen=True)
class LinearHead:
    """z = W f + b, its temperature divided in, and the NLL of the training images that it was not fitted on."""

    weight: Tensor  # (C, D)
    bias: Tensor  # (C,)
    nll: float
    name: str


def can_have_one(network: FeatureModel, loss: Loss, corrections: float) -> bool:
    """One linear classifier, and a loss that leaves logits and class shares as they are."""
    if network.recipe not in ("plain", "pooling head") or not isinstance(network.classifier_layers()[0], nn.Linear):
        return False
    device = next(network.parameters()).device
    probe = torch.eye(loss.num_classes, device=device)
    return bool(torch.equal(loss.adjust_logits(probe), probe)) and not corrections and not loss.absorbed_prior_strength


def fit_frozen_head(
    network: FeatureModel, train: EvalSource, *, batch_size: int, device: torch.device, channels_last: bool
) -> LinearHead | None:
    """The best of three heads by the NLL of rows left out, each with the temperature of those rows.

    A discriminant and two logistic regressions, five folds by class. None where a class has one image only.
    """
    out = run_network(network, train, batch_size=batch_size, device=device, features=True, channels_last=channels_last)
    assert out.features is not None
    x, labels = torch.from_numpy(out.features), train.images.labels[out.rows]
    classes = network.num_classes
    if np.bincount(labels, minlength=classes).min() < 2:
        return None
    mean, spread = x.mean(0), x.std(0).clamp_min(1e-6)
    x, y = (x - mean) / spread, torch.from_numpy(labels)
    folds = _folds(labels)
    best: tuple[float, float, str] | None = None
    for name in _CANDIDATES:
        z = np.empty((len(y), classes))
        for k in range(FOLDS):
            inside, outside = torch.from_numpy(folds != k), torch.from_numpy(folds == k)
            w, b = _CANDIDATES[name](x[inside], y[inside], classes)
            z[outside.numpy()] = (x[outside] @ w.T + b).double().numpy()
        temperature = float(minimise_nll(z, labels).temperature)
        nll = float(-log_softmax(z / temperature)[np.arange(len(labels)), labels].mean())
        if best is None or nll < best[0]:
            best = (nll, temperature, name)
    assert best is not None
    nll, temperature, name = best
    w, b = _CANDIDATES[name](x, y, classes)
    w = w / spread
    return LinearHead(w / temperature, (b - w @ mean) / temperature, nll, name)


def put(network: FeatureModel, head: LinearHead) -> None:
    """Write the head into the network's classifier."""
    layer = network.classifier_layers()[0]
    assert isinstance(layer, nn.Linear)  # can_have_one()
    with torch.no_grad():
        layer.weight.copy_(head.weight)
        layer.bias.copy_(head.bias)


def _discriminant(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """With the class shares of its rows, which the plain discriminant leaves out."""
    w, b = discriminant(x, y, classes, prior_rows=1.0, shrinkage=_SHRINKAGE, between=_BETWEEN)
    shares = torch.bincount(y, minlength=classes).double() + 0.5
    return w, b + (shares / shares.sum()).log().to(b)


def _logistic(l2: float) -> _Fit:
    def solved(x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        return logistic(x, nn.functional.one_hot(y, classes).to(x), l2=l2, max_iterations=100)

    return solved


def _folds(labels: NDArray[np.int64]) -> NDArray[np.intp]:
    """The fold of each row: the rows of a class go round, so that every fold has its share of each."""
    folds = np.empty(len(labels), np.intp)
    for k in np.unique(labels):
        rows = np.flatnonzero(labels == k)
        folds[rows] = (np.arange(len(rows)) + k) % FOLDS
    return folds


_CANDIDATES: dict[str, _Fit] = {"discriminant": _discriminant} | {f"logistic {l2:g}": _logistic(l2) for l2 in _L2}
