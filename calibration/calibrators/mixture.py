"""A mixture of calibrators: q = sum_j w_j softmax(map_j(z)), with the weights of `pooling.py`; then softmax(log q / T).

A linear pool of maps that disagree is less sure than it could be, even if each of them is calibrated (Ranjan and
Gneiting 2010), which T mends. Calibrated logits are log max(q, 1e-12) / T. Members are methods of the table with their
own numbers, so whatever a member is, the mixture goes into files and graphs with it. `auto` chooses the members by its
own table of candidates; members whose share comes out below two hundredths are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.calibration.calibrators.form import Form, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import Affine, Pool, Step
from calibrant.errors import ConfigError


def _members(p: Parameters) -> list[dict[str, Any]]:
    found = p.get("members")
    if not isinstance(found, list) or not all(
        isinstance(m, dict) and {"method", "parameters"} <= set(m) for m in found
    ):
        raise ConfigError('parameter "members" must be a list of methods with their parameters')
    return found


def _check(p: Parameters, classes: int) -> None:
    from calibrant.calibration.calibrators.table import form

    members = _members(p)
    w = numbers(p, "weights", (len(members),))
    if not members or (w < 0).any() or abs(w.sum() - 1) > 1e-6:
        raise ConfigError('parameter "weights" must be shares that sum to one')
    if "temperature" in p:
        positive(p, "temperature", ())
    for member in members:
        if member["method"] == "mixture":
            raise ConfigError("a mixture cannot be a member of a mixture")
        found = form(str(member["method"]))
        if found.reads_features:
            raise ConfigError(f"{found.method} reads features, which no member of a mixture is given")
        found.check(member["parameters"], classes)


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    from calibrant.calibration.calibrators.table import form

    branches = tuple(form(m["method"]).steps(m["parameters"], classes) for m in _members(p))
    pool = Pool(branches, tuple(float(w) for w in p["weights"]))
    return (pool, Affine.scale(np.full(classes, 1.0 / float(p["temperature"])))) if "temperature" in p else (pool,)


def mixture(
    members: list[tuple[str, dict[str, Any]]], weights: list[float], temperature: float = 1.0
) -> dict[str, Any]:
    """The parameters of one."""
    found = {"weights": weights, "members": [{"method": m, "parameters": p} for m, p in members]}
    return found if temperature == 1.0 else {**found, "temperature": temperature}


def fit_mixture(*args: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    raise ConfigError("a mixture has no fit of its own", fix="use --method auto, which mixes where that pays")


MIXTURE = Form("mixture", fit_mixture, _check, _steps)
