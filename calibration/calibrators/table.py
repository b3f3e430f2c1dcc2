"""Every calibration method, one record each, in the order in which they are named to users.

To add one: its file with formula, fit, check and steps, and a line here. Commands, calibrator files, export, the server
and the tests that hold them together read this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from calibrant.calibration.calibrators import (
    adaptive_temperature,
    affine,
    by_group,
    density_aware,
    ensemble,
    mixture,
    order_preserving,
    structured,
    temperature,
)
from calibrant.calibration.calibrators.form import Form, Parameters
from calibrant.calibration.calibrators.one_vs_rest import beta, binning, spline, venn_abers
from calibrant.calibration.calibrators.steps import Affine
from calibrant.errors import ConfigError, did_you_mean
from calibrant.plugins import Extended

_OWN: dict[str, Form] = {
    form.method: form
    for form in (
        temperature.TEMPERATURE,
        adaptive_temperature.ADAPTIVE_TEMPERATURE,
        density_aware.DENSITY_AWARE,
        order_preserving.ORDER_PRESERVING,
        affine.CLASSWISE,
        affine.VECTOR,
        affine.MATRIX,
        affine.DIRICHLET,
        structured.STRUCTURED,
        structured.STRUCTURED_VECTOR,
        beta.BETA,
        spline.SPLINE,
        venn_abers.VENN_ABERS,
        binning.ISOTONIC,
        binning.HISTOGRAM,
        binning.BBQ,
        binning.ENIR,
        ensemble.ENSEMBLE,
        mixture.MIXTURE,
        by_group.BY_GROUP,
    )
}
FORMS: Mapping[str, Form] = Extended(_OWN, "calibrators")  # with those of plugins


def form(method: str) -> Form:
    if method not in FORMS:
        raise ConfigError(f'no calibration method "{method}"', fix=did_you_mean(method, FORMS))
    return FORMS[method]


def diagonal(method: str, parameters: Parameters, classes: int) -> Affine | None:
    """The map where it acts on each logit by itself, so that the network's logits can be had back."""
    found = FORMS.get(method)
    return found.affine(parameters, classes) if found is not None and found.diagonal else None
