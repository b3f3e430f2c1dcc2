"""Counting rows in cells loses none of them, and hardly changes what is fitted to them."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit, metrics
from calibrant.calibration.calibrators.one_vs_rest import beta, cells, venn_abers
from calibrant.calibration.softmax import softmax


def test_cells_by_hand() -> None:
    u = np.array([0.001, -0.001, 0.5, -99.0])
    x, size, hits = cells.counted(u, np.array([True, False, True, False]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert x == pytest.approx([-60.0, 0.0, 0.5])
    assert size.tolist() == [4.0, 3.0, 3.0]
    assert hits.tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize("method", ["beta", "venn-abers"])
def test_a_map_of_cells_predicts_as_that_of_rows(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(6000, 5)) * 4
    y = (softmax(z / 2).cumsum(axis=1) > rng.random((6000, 1))).argmax(axis=1)
    found = []
    for many in (1.0, 1e12):
        for module in (beta, venn_abers):
            monkeypatch.setattr(module, "MANY", many)
        found.append(fit(method, z[:1000], y[:1000], mixture=False).probabilities(z[1000:]))
    assert not np.array_equal(found[0], found[1])
    assert metrics.nll(found[0], y[1000:]) == pytest.approx(metrics.nll(found[1], y[1000:]), abs=2e-3)
