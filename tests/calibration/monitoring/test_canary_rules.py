"""Rules of a canary that mean nothing."""

from __future__ import annotations

import pytest

from calibrant.calibration.monitoring.canary_rules import CanaryRules
from calibrant.errors import ConfigError


def test_rules_that_mean_nothing_are_refused() -> None:
    for values in ({"alpha": 0.0}, {"ece_gain": 1.0}, {"slower": 0.5}, {"hours": 0.0}, {"labels": -1}):
        with pytest.raises(ConfigError, match="canary rules"):
            CanaryRules(**values)  # type: ignore[arg-type]
