"""A weighted sum of losses."""

from __future__ import annotations

import pytest
import torch

from calibrant.train.losses import BalancedSoftmax, Combined, SupCon


def test_combined_is_the_weighted_sum_with_the_predictions_of_its_first_part() -> None:
    rng = torch.Generator().manual_seed(7)
    z = torch.randn(12, 5, generator=rng, dtype=torch.float64)
    f, y = torch.randn(12, 6, generator=rng, dtype=torch.float64), torch.arange(12) % 4
    parts = [(2.0, BalancedSoftmax(5, [50, 30, 12, 5, 2])), (0.6, SupCon(5))]
    loss = Combined(parts)
    assert loss(z, y, f).item() == pytest.approx(sum(w * p(z, y, f).item() for w, p in parts), rel=1e-12)
    assert (loss.absorbed_prior_strength, loss.needs_features, loss.features_carry_gradient) == (1, True, True)
