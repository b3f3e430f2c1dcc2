"""A mixture in files: its members are checked as what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.calibrators.mixture import mixture
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, FormatError

GOOD = mixture([("temperature", {"temperature": 2.0}), ("temperature", {"temperature": 1.0})], [0.5, 0.5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0.5, 0.6]}, "sum to one"),
        ({"temperature": 0.0}, "positive"),
        ({"members": "temperature"}, "list of methods"),
        ({"members": [{"method": "temperature", "parameters": {"temperature": -1}}] * 2}, "positive"),
        ({"members": [{"method": "mixture", "parameters": GOOD}] * 2}, "cannot be a member"),
        ({"members": [{"method": "tempereture", "parameters": {}}] * 2}, "did you mean"),
    ],
)
def test_damaged_mixtures_are_refused(change: dict[str, Any], message: str) -> None:
    block = Calibrator("mixture", 3, GOOD).to_dict()
    block["parameters"] = {**block["parameters"], **change}
    with pytest.raises(FormatError, match=message):
        Calibrator.from_dict(block)


def test_it_is_made_by_auto_and_not_fitted_by_name() -> None:
    with pytest.raises(ConfigError, match="--method auto"):
        fit("mixture", np.zeros((20, 2)), np.zeros(20, int))


def test_its_temperature_sharpens_the_pool_and_older_readers_refuse_the_file() -> None:
    z = np.random.default_rng(0).normal(0, 3, (40, 3))
    members = [("temperature", {"temperature": t}) for t in (2.0, 1.0)]
    plain, sharper = (Calibrator("mixture", 3, mixture(members, [0.5, 0.5], t)) for t in (1.0, 0.8))
    q = plain.probabilities(z)
    np.testing.assert_allclose(q, (softmax(z / 2) + softmax(z)) / 2, atol=1e-12)
    expected = q**1.25 / (q**1.25).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sharper.probabilities(z), expected, atol=1e-12)
    assert [c.to_dict()["format_version"] for c in (plain, sharper)] == [1, 3]
    np.testing.assert_array_equal(Calibrator.from_json(sharper.to_json()).probabilities(z), sharper.probabilities(z))
