"""The same numbers through netcal (and torchmetrics, if installed), and why they differ where they do."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration import metrics
from calibrant.calibration.calibrators import fit
from calibrant.calibration.calibrators.one_vs_rest.binning import netcal_class, quiet
from calibrant.calibration.inputs import Floats, Labels
from calibrant.calibration.softmax import log_softmax, softmax

Probs = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """One number, ours and theirs. `expected`: the difference is a known one, for the reason given."""

    what: str
    library: str
    ours: float
    theirs: float | None
    expected: bool
    reason: str

    @property
    def difference(self) -> float | None:
        return None if self.theirs is None else self.theirs - self.ours

    @property
    def agrees(self) -> bool:
        return self.theirs is not None and abs(self.theirs - self.ours) <= 1e-6 * max(1.0, abs(self.ours))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "difference": self.difference, "agrees": self.agrees}


def cross_check(logits: Floats, labels: Labels, *, bins: int = 15) -> list[Comparison]:
    """Metrics on all rows; calibrators fitted on all rows and judged by NLL on the same ones."""
    p = softmax(logits)
    return [*_netcal_metrics(p, labels, bins), *_netcal_fits(logits, p, labels, bins), *_torchmetrics(p, labels, bins)]


def _netcal_metrics(p: Probs, y: Labels, bins: int) -> list[Comparison]:
    ties = len(np.unique(p.max(axis=1))) < len(p)
    rows: list[tuple[str, Callable[[], float], float, bool, str]] = [
        ("ECE", _metric("ECE", p, y, bins), metrics.ece(p, y, bins=bins), False, "the same definition"),
        ("MCE", _metric("MCE", p, y, bins), metrics.mce(p, y, bins=bins), False, "the same definition"),
        (
            "unweighted ECE (netcal ACE)", _metric("ACE", p, y, bins), metrics.unweighted_ece(p, y, bins=bins), False,
            "netcal's ACE is the unweighted mean of gaps, not the adaptive ECE of the literature",
        ),
        (
            "adaptive ECE", _metric("ECE", p, y, bins, equal_intervals=False), metrics.adaptive_ece(p, y, bins=bins),
            True,
            "netcal cuts at interpolated quantiles into [a, b)" + ("; equal confidences make it fail" if ties else ""),
        ),
    ]  # fmt: skip
    return [Comparison(what, "netcal", ours, _run(call), known, why) for what, call, ours, known, why in rows]


def _metric(name: str, p: Probs, y: Labels, bins: int, **options: Any) -> Callable[[], float]:
    def call() -> float:
        return float(netcal_class("metrics", name)(bins, **options).measure(p.copy(), y))

    return call


def _netcal_fits(z: Floats, p: Probs, y: Labels, bins: int) -> list[Comparison]:
    scaling = netcal_class("scaling", "TemperatureScaling")
    ours = fit("temperature", z, y)
    t = float(ours.parameters["temperature"])

    def temperature(probs: NDArray[Any]) -> float:
        model = scaling()
        model.fit(probs.copy(), y)
        return float(1.0 / np.asarray(model.temperature).ravel()[0])

    def nll(model: Any) -> float:
        model.fit(p.copy(), y)
        q = np.maximum(np.asarray(model.transform(p.copy()), np.float64), 1e-12)
        q /= q.sum(axis=1, keepdims=True)
        return float(-np.log(q[np.arange(len(y)), y]).mean())

    def own(method: str, **options: Any) -> float:
        u = log_softmax(fit(method, z, y, **options).logits(z))
        return float(-u[np.arange(len(y)), y].mean())

    coarse = "netcal stops within 1e-6 of the optimum; its attribute `temperature` is 1/T"
    single = "netcal on float32: finite differences vanish in rounding and the optimiser stops where it began"
    return [
        Comparison("temperature T (float64)", "netcal", t, _run(lambda: temperature(p)), True, coarse),
        Comparison(
            "temperature T (float32)", "netcal", t, _run(lambda: temperature(p.astype(np.float32))), True, single
        ),
        Comparison(
            "vector scaling NLL", "netcal", own("vector", penalty=0),
            _run(lambda: nll(netcal_class("scaling", "LogisticCalibration")(temperature_only=False))), True,
            "netcal scales log p instead of logits: another model as soon as the weights differ",
        ),
        Comparison(
            "isotonic NLL", "netcal", own("isotonic", mixture=False),
            _run(lambda: nll(netcal_class("binning", "IsotonicRegression")())), True,
            "zeros: ours are 1e-12 before renormalising, netcal's are 0 (floored here at 1e-12 after)",
        ),
        Comparison(
            "histogram binning NLL", "netcal", own("histogram", bins=bins, mixture=False),
            _run(lambda: nll(netcal_class("binning", "HistogramBinning")(bins))), True,
            "zeros as above; netcal's bins are (a, b], ours [a, b)",
        ),
        Comparison(
            "BBQ NLL", "netcal", own("bbq", mixture=False), _run(lambda: nll(netcal_class("binning", "BBQ")())), False,
            "the same fit, stored as steps",
        ),
    ]  # fmt: skip


def _torchmetrics(p: Probs, y: Labels, bins: int) -> list[Comparison]:
    if importlib.util.find_spec("torchmetrics") is None:
        return []
    torch = importlib.import_module("torch")
    function = importlib.import_module("torchmetrics.functional.classification").multiclass_calibration_error
    why = "torchmetrics puts confidence 1.0 into a hidden extra bin (its issue 3510), and computes in float32"

    def call(norm: str) -> Callable[[], float]:
        return lambda: float(
            function(torch.from_numpy(p), torch.from_numpy(y), num_classes=p.shape[1], n_bins=bins, norm=norm)
        )

    return [
        Comparison("ECE", "torchmetrics", metrics.ece(p, y, bins=bins), _run(call("l1")), True, why),
        Comparison(
            "RMS calibration error",
            "torchmetrics",
            metrics.rms_calibration_error(p, y, bins=bins),
            _run(call("l2")),
            True,
            why,
        ),
        Comparison("MCE", "torchmetrics", metrics.mce(p, y, bins=bins), _run(call("max")), True, why),
    ]


def _run(call: Callable[[], float]) -> float | None:
    """The library's number, or None where it fails: that is a finding, not our error."""
    try:
        with quiet():
            value = call()
    except (ValueError, RuntimeError, ArithmeticError, IndexError):
        return None
    return value if np.isfinite(value) else None
