"""Methods that map each class's probability by itself: isotonic, histogram, BBQ, ENIR. One-vs-rest, then renormalised.

q_k = g_k(p_k), p = softmax(z) in float64; calibrated logits = log max(q_k, 1e-12), whose softmax is q renormalised. No
probability is 0, and a row that is 0 for every class becomes uniform. Every g_k is piecewise linear ("linear": straight
between the knots, constant outside) or piecewise constant ("constant": y_j for x_j <= p < x_(j+1)).

By default a temperature stands beside them (`anchor.py`), so that no zero of a bin reaches the probabilities;
`mixture=false` leaves the method alone.

isotonic: least squares under monotony (Zadrozny & Elkan 2002), knots as scikit-learn's. histogram: mean label in each
of `bins` equal intervals [a, b), the middle of an empty one (Zadrozny & Elkan 2001). bbq, enir: averages of histograms
(Naeini et al. 2015) and of near-isotonic fits (Naeini & Cooper 2016), fitted by netcal, always in float64 (on float32
it is unreliable), and stored as one function on the union of their knots: netcal is not needed to apply them.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Parameters, positive
from calibrant.calibration.calibrators.one_vs_rest.anchor import Fitted, Plain, anchored, beside, check_anchor
from calibrant.calibration.calibrators.steps import (
    Affine,
    PiecewiseConstant,
    PiecewiseLinear,
    Step,
)
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.bins import equal_width_edges, sums
from calibrant.errors import ConfigError, MissingExtra

Vector = NDArray[np.float64]


def fit_isotonic(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, mixture: bool = True, seed: int = 0
) -> Fitted:
    return _beside(_isotonic_knots, own_knots, logits, labels, weights, mixture, seed)


def _beside(
    plain: Plain,
    steps: Callable[[Parameters, int], tuple[Step, ...]],
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    mixture: bool,
    seed: int,
) -> Fitted:
    if mixture:
        return anchored(plain, steps, logits, labels, weights, seed=seed, zeros=True)
    return plain(logits, labels, weights), {}


def _isotonic_knots(logits: Floats, labels: Labels, weights: Weights | None) -> dict[str, Any]:
    probs = softmax(logits)
    knots = [_isotonic(probs[:, k], labels == k, weights) for k in range(probs.shape[1])]
    return {"x": [x.tolist() for x, _ in knots], "y": [y.tolist() for _, y in knots], "kind": "linear"}


def _isotonic(p: Vector, positive: NDArray[np.bool_], weights: Weights | None) -> tuple[Vector, Vector]:
    from scipy.optimize import isotonic_regression

    x, index = np.unique(p, return_inverse=True)
    weight = np.bincount(index, weights, len(x)).astype(np.float64)
    hits = np.bincount(index, positive if weights is None else weights * positive, len(x))
    used = weight > 0
    x, weight = x[used], weight[used]
    y = np.clip(isotonic_regression(hits[used] / weight, weights=weight).x, 0.0, 1.0)
    # Inside a run of equal values the function is flat: its two ends are enough.
    keep = np.ones(len(x), bool)
    keep[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return x[keep], y[keep]


def fit_histogram(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    bins: int = 15,
    mixture: bool = True,
    seed: int = 0,
) -> Fitted:
    if bins < 1:
        raise ConfigError(f"bins is {bins}, expected at least 1")
    return _beside(partial(_histogram, bins=bins), _own_bins, logits, labels, weights, mixture, seed)


def _histogram(logits: Floats, labels: Labels, weights: Weights | None, *, bins: int) -> dict[str, Any]:
    probs = softmax(logits)
    edges = equal_width_edges(bins)
    middle = (edges[:-1] + edges[1:]) / 2
    values = []
    for k in range(probs.shape[1]):
        index = np.searchsorted(edges[1:-1], probs[:, k], side="right")
        w = np.ones(len(labels)) if weights is None else weights
        size = sums(index, w, bins)
        mean = np.divide(sums(index, w * (labels == k), bins), size, out=middle.copy(), where=size > 0)
        values.append(mean.tolist())
    return {"edges": [edges.tolist()] * probs.shape[1], "values": values}


def fit_bbq(logits: Floats, labels: Labels, *, score: str = "BIC", mixture: bool = True, seed: int = 0) -> Fitted:
    """`score`: "BIC" or "AIC", how the histograms are weighed against each other."""
    return _fit_netcal("BBQ", logits, labels, score, mixture, seed)


def fit_enir(logits: Floats, labels: Labels, *, score: str = "BIC", mixture: bool = True, seed: int = 0) -> Fitted:
    """`score`: "BIC" or "AIC", how the near-isotonic fits are weighed against each other."""
    return _fit_netcal("ENIR", logits, labels, score, mixture, seed)


def _fit_netcal(name: str, logits: Floats, labels: Labels, score: str, mixture: bool, seed: int) -> Fitted:
    if score not in ("BIC", "AIC"):
        raise ConfigError(f'score is "{score}", expected BIC or AIC')
    plain = partial(_netcal_knots, name=name, score=score)
    found, notes = _beside(plain, own_knots, logits, labels, None, mixture, seed)
    return found, {"score": score, **notes}


def _netcal_knots(logits: Floats, labels: Labels, weights: Weights | None, *, name: str, score: str) -> dict[str, Any]:
    probs = softmax(logits)
    method = netcal_class("binning", name)
    knots = []
    for k in range(probs.shape[1]):
        with quiet():
            model = method(score_function=score)
            model.fit(probs[:, k].copy(), (labels == k).astype(np.int64))
            knots.append(_steps(model))
    return {"x": [x.tolist() for x, _ in knots], "y": [y.tolist() for _, y in knots], "kind": "constant"}


def _steps(model: Any) -> tuple[Vector, Vector]:
    """netcal's pieces are (lower, upper]: the value of each is the one at its upper end."""
    ends: list[Any] = [np.array([0.0, 1.0])]
    for part in model._binning_models:
        bounds = part._bin_bounds[0] if hasattr(part, "_bin_bounds") else np.asarray(part._group_bounds)
        ends.append(np.asarray(bounds, np.float64).ravel())
    upper = np.unique(np.clip(np.concatenate(ends), 0.0, 1.0))
    values = np.asarray(model.transform(upper), np.float64).ravel()
    # (e_j-1, e_j] has value(e_j): in our terms it begins at the number just after e_j-1.
    x = np.append(0.0, np.nextafter(upper[:-1], 2.0)) if upper[0] == 0.0 else np.nextafter(upper, 2.0)
    keep = np.append(True, values[1:] != values[:-1])
    return x[keep], values[keep]


def netcal_class(package: str, name: str) -> Callable[..., Any]:
    try:
        with quiet():
            import importlib

            module = importlib.import_module(f"netcal.{package}")
    except ModuleNotFoundError as error:
        raise MissingExtra(f"method {name}", "calibration", error.name or "netcal") from None
    found: Callable[..., Any] = getattr(module, name)
    return found


@contextlib.contextmanager
def quiet() -> Any:
    """netcal prints progress bars and warnings of its own; none of them reaches the user."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
    ):
        warnings.simplefilter("ignore")
        yield


# ---- how they act ----


def check_knots(p: Parameters, classes: int) -> None:
    if p.get("kind") not in ("linear", "constant"):
        raise ConfigError(f'parameter "kind" is {p.get("kind")!r}, expected linear or constant')
    _check_lists(p, "x", "y", classes, 0)
    check_anchor(p)


def _check_histogram(p: Parameters, classes: int) -> None:
    _check_lists(p, "edges", "values", classes, 1)
    check_anchor(p)


def _check_lists(p: Parameters, first: str, second: str, classes: int, more: int) -> None:
    """One increasing list and one list of shares for each class; the first holds `more` numbers more."""
    try:
        lists = [[np.asarray(v, np.float64) for v in p[key]] for key in (first, second)]
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f'parameters "{first}" and "{second}" must be lists of numbers for each class') from None
    if len(lists[0]) != classes or len(lists[1]) != classes:
        raise ConfigError(f'parameters "{first}" and "{second}" must have one list for each of {classes} classes')
    for x, y in zip(*lists, strict=True):
        fits = x.ndim == y.ndim == 1 and len(y) > 0 and len(x) == len(y) + more
        if not fits or not np.isfinite(x).all() or (np.diff(x) <= 0).any():
            raise ConfigError(f'parameter "{first}" must be increasing and match "{second}"')
        if not np.isfinite(y).all() or (y < 0).any() or (y > 1).any():
            raise ConfigError(f'parameter "{second}" must hold shares from 0 to 1')


def _knot_steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    return beside(p, classes, own_knots(p, classes))


def own_knots(p: Parameters, classes: int) -> tuple[Step, ...]:
    x, y = _arrays(p["x"]), _arrays(p["y"])
    return (PiecewiseLinear(x, y) if p["kind"] == "linear" else PiecewiseConstant([v[1:] for v in x], y),)


# Knots of probabilities after a temperature.


def check_tempered_knots(p: Parameters, classes: int) -> None:
    positive(p, "temperature", ())
    check_knots(p, classes)


def own_tempered_knots(p: Parameters, classes: int) -> tuple[Step, ...]:
    return Affine.scale(np.full(classes, 1.0 / float(p["temperature"]))), *own_knots(p, classes)


def tempered_knot_steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    return beside(p, classes, own_tempered_knots(p, classes))


def _histogram_steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    return beside(p, classes, _own_bins(p, classes))


def _own_bins(p: Parameters, classes: int) -> tuple[Step, ...]:
    return (PiecewiseConstant([v[1:-1] for v in _arrays(p["edges"])], _arrays(p["values"])),)


def _arrays(lists: Any) -> list[Vector]:
    return [np.asarray(v, np.float64) for v in lists]


ISOTONIC = Form("isotonic", fit_isotonic, check_knots, _knot_steps)
HISTOGRAM = Form("histogram", fit_histogram, _check_histogram, _histogram_steps)
BBQ = Form("bbq", fit_bbq, check_knots, _knot_steps)
ENIR = Form("enir", fit_enir, check_knots, _knot_steps)
