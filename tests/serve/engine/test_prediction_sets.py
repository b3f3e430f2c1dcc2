from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.conformal import sets as fitted
from calibrant.errors import ConfigError, FormatError
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.prediction_sets import coverages, prediction_sets

ROOT = Path(__file__).resolve().parents[3]

P = np.array([[0.1, 0.2, 0.3, 0.4], [0.97, 0.01, 0.01, 0.01], [0.25, 0.25, 0.26, 0.24]])


@pytest.mark.parametrize("kind", ["lac", "aps", "raps"])
@pytest.mark.parametrize("class_conditional", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sets_are_those_of_the_toolkit_that_fitted_them(
    tiny: ModuleType, kind: str, class_conditional: bool, temperature: float
) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 400)
    y = (rng.random((400, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    found = fitted.fit_conformal(
        p, y, alpha=0.1, kind=kind, class_conditional=class_conditional, temperature=temperature,  # type: ignore[arg-type]
    )  # fmt: skip
    card = tiny.card(conformal={"0.1": found.to_dict()})
    np.testing.assert_array_equal(prediction_sets(card, p, 0.9), found.contains(p))


def test_by_hand(tiny: ModuleType) -> None:
    """aps, threshold 0.5: classes with at most 0.5 above them: 4th (0), 3rd (0.4) of the first row, not 2nd (0.7)."""
    card = tiny.card(conformal={"0.2": {"kind": "aps", "threshold": 0.5}})
    members = prediction_sets(card, P, 0.8)
    assert members.tolist() == [[False, False, True, True], [True] + [False] * 3, [True, False, True, False]]


def test_an_infinite_threshold_admits_every_class(tiny: ModuleType) -> None:
    card = tiny.card(conformal={"0.01": {"kind": "lac", "threshold": None}})
    assert prediction_sets(card, P, 0.99).all()


def fitted_without_a_prior_term(tiny: ModuleType) -> dict[str, object]:
    return {"method": "temperature", "parameters": {"temperature": 2.0},
            "conformal": {"0.1": {"kind": "lac", "threshold": 0.7}}, "fitted_on": {"rows": 10}}  # fmt: skip


def test_sets_of_a_file_that_corrects_to_another_prior_are_refused(tiny: ModuleType) -> None:
    card = tiny.card(calibrator=fitted_without_a_prior_term(tiny), conformal=None,
                     prior=Prior(train=tiny.TRAIN, applied=1.0))  # fmt: skip
    assert coverages(card) == ()
    with pytest.raises(ConfigError, match="fitted under another class prior.*adjust FILE --labelled"):
        prediction_sets(card, P, 0.9)


def test_sets_that_were_fitted_inside_the_file_s_own_correction_hold(tiny: ModuleType) -> None:
    term = np.log(np.array(tiny.TRAIN) * 4)
    inside = {"strength": 1.0, "log_prior_ratio": term.tolist()}
    for fitted_on in (inside, {"decided_shift": (term + 5).tolist()}):  # a constant is not seen by softmax
        calibrator = {**fitted_without_a_prior_term(tiny), "fitted_on": fitted_on}
        card = tiny.card(calibrator=calibrator, conformal=None, prior=Prior(train=tiny.TRAIN, applied=1.0))
        np.testing.assert_array_equal(prediction_sets(card, P, 0.9), P >= 0.3)


def test_no_coverage_is_promised_under_the_prior_of_a_request(tiny: ModuleType) -> None:
    formula = DeployedFormula.of(tiny.card(prior=Prior(train=tiny.TRAIN, applied=1.0)))
    for knobs in (Knobs(coverage=0.9, target_prior=(0.7, 0.1, 0.1, 0.1)), Knobs(coverage=0.9, adjust_strength=0.5)):
        with pytest.raises(ConfigError, match="not under that of the request"):
            formula.check(knobs)
    formula.check(Knobs(coverage=0.9, target_prior="uniform", temperature=0.5))  # the file's own
    formula.check(Knobs(target_prior=(0.7, 0.1, 0.1, 0.1)))


def test_serving_sets_loads_no_scipy() -> None:
    code = "import calibrant.serve.engine.prediction_sets, sys; print('scipy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "False"


def test_what_is_not_there_or_damaged_is_said(tiny: ModuleType) -> None:
    with pytest.raises(ConfigError, match="no conformal thresholds"):
        prediction_sets(tiny.card(conformal=None), P, 0.9)
    with pytest.raises(ConfigError, match="it holds: 0.9, 0.95"):
        prediction_sets(tiny.card(), P, 0.5)
    with pytest.raises(FormatError, match="damaged"):
        prediction_sets(tiny.card(conformal={"0.1": {"kind": "lac"}}), P, 0.9)
    with pytest.raises(FormatError, match='kind "magic"'):
        prediction_sets(tiny.card(conformal={"0.1": {"kind": "magic", "threshold": 0.5}}), P, 0.9)
