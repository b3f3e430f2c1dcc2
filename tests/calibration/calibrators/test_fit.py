"""What every method promises of a fit."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError
from tests.calibration.calibrators.conftest import half


def test_classes_without_rows_are_survived() -> None:
    rng = np.random.default_rng(6)
    z = rng.normal(size=(200, 4))
    y = rng.integers(0, 3, 200)  # class 3 never occurs
    for method in ("temperature", "matrix", "structured", "beta", "isotonic", "histogram", "ensemble-temperature"):
        probs = fit(method, z, y).probabilities(z)
        assert np.isfinite(log_softmax(np.log(probs))).all(), method


def test_options_that_do_not_belong_are_refused() -> None:
    logits, labels = (a[:100] for a in half("cal"))
    with pytest.raises(ConfigError, match='no option "bins"'):
        fit("vector", logits, labels, bins=1)
    with pytest.raises(ConfigError, match="did you mean"):
        fit("matrix", logits, labels, penalti=1)
    with pytest.raises(ConfigError, match="0 or more"):
        fit("matrix", logits, labels, penalty=-1.0)
    with pytest.raises(ConfigError, match="cannot be fitted inside"):
        fit("isotonic", logits, labels, log_prior_ratio=np.zeros(10), strength=1.0)
    with pytest.raises(ConfigError, match="no weights"):
        fit("bbq", logits, labels, weights=np.ones(100))
