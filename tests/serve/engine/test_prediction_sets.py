from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.conformal import sets as fitted
from calibrant.errors import ConfigError, FormatError
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.prediction_sets import prediction_sets

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


def test_thresholds_of_the_calibrator_use_the_probabilities_of_its_fit(tiny: ModuleType) -> None:
    """Fitted before the prior term, served behind it: the sets are made from softmax(u), not softmax(u - a r)."""
    calibrator = {"method": "temperature", "parameters": {"temperature": 2.0},
                  "conformal": {"0.1": {"kind": "lac", "threshold": 0.7}}, "fitted_on": {"rows": 10}}  # fmt: skip
    card = tiny.card(calibrator=calibrator, conformal=None, prior=Prior(train=tiny.TRAIN, applied=1.0))
    term = np.log(np.array(tiny.TRAIN) * 4)
    got = DeployedFormula.of(card).conformal_probabilities({"logits": np.log(P) - term})
    np.testing.assert_allclose(got, P, atol=1e-12)
    np.testing.assert_array_equal(prediction_sets(card, got, 0.9), P >= 0.3)
    inside = {**calibrator, "fitted_on": {"strength": 1.0, "log_prior_ratio": term.tolist()}}
    served = DeployedFormula.of(tiny.card(calibrator=inside, conformal=None)).conformal_probabilities(
        {"logits": np.log(P)}
    )
    np.testing.assert_allclose(served, P, atol=1e-12)


def test_what_is_not_there_or_damaged_is_said(tiny: ModuleType) -> None:
    with pytest.raises(ConfigError, match="no conformal thresholds"):
        prediction_sets(tiny.card(conformal=None), P, 0.9)
    with pytest.raises(ConfigError, match="it holds: 0.9, 0.95"):
        prediction_sets(tiny.card(), P, 0.5)
    with pytest.raises(FormatError, match="damaged"):
        prediction_sets(tiny.card(conformal={"0.1": {"kind": "lac"}}), P, 0.9)
    with pytest.raises(FormatError, match='kind "magic"'):
        prediction_sets(tiny.card(conformal={"0.1": {"kind": "magic", "threshold": 0.5}}), P, 0.9)
