"""Every calibrator that the toolkit can fit, as a graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.calibration import METHODS, Calibrator, fit
from calibrant.calibration.calibrators.by_group import Correction, parameters_of
from calibrant.calibration.softmax import softmax
from calibrant.errors import ModelError
from calibrant.export import edit
from calibrant.export.checks.parity import session, steady_rows
from calibrant.export.graph.fold import tail_steps
from calibrant.export.graph.piecewise import rounded_up
from calibrant.export.graph.tail import Tail, standalone

from ..conftest import CLASSES, PRIOR, pixels

C = len(CLASSES)
SLOW_TO_FIT = {"bbq", "enir"}  # netcal; their form is the one of isotonic with kind "constant"
FITTED = [m for m in METHODS if m not in {"mixture", "by-group", "density-aware", *SLOW_TO_FIT}]


def data(rows: int = 600, classes: int = C, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    z = rng.normal(0, 1.5, (rows, classes)) + 2.0 * np.eye(classes)[y]
    return 1.7 * z, y


def bins_like_netcal() -> Calibrator:
    """Constant pieces that begin just behind round numbers, as BBQ stores them."""
    x = [[0.0, *np.nextafter([0.25, 0.5, 0.75], 2.0).tolist()]] * C
    return Calibrator("bbq", C, {"x": x, "y": [[0.05, 0.3, 0.6, 0.9]] * C, "kind": "constant"})


def run(calibrator: Calibrator, z: NDArray[Any], output: str = "logits") -> NDArray[np.float64]:
    tail = Tail(z.shape[1], "raw_logits", None, None, tail_steps(z.shape[1], calibrator=calibrator))
    found = session(standalone(tail)).run([output], {"raw_logits": z.astype(np.float32)})[0]
    return np.asarray(found, np.float64)


def steady(calibrator: Calibrator, z: NDArray[Any]) -> NDArray[np.bool_]:
    """Rows that do not sit within float32 rounding of a step: there the function itself jumps."""
    near = [calibrator.logits(z * (1 + e)) for e in (-3e-6, 3e-6)]
    return np.asarray(np.abs(near[0] - near[1]).max(1) < 1e-2)


@pytest.mark.parametrize("method", FITTED)
def test_every_fitted_calibrator_agrees_with_its_graph(method: str) -> None:
    z, y = data()
    calibrator = fit(method, z, y)
    fresh = data(400, seed=1)[0].astype(np.float32)
    keep = steady(calibrator, fresh)
    assert keep.mean() > 0.95
    expected = softmax(calibrator.logits(fresh))
    np.testing.assert_allclose(run(calibrator, fresh, "probabilities")[keep], expected[keep], atol=1e-5)


@pytest.mark.parametrize("method", ["temperature", "structured", "isotonic"])
def test_a_group_s_calibrator_agrees_with_its_graph(method: str) -> None:
    z, y = data()
    common = fit(method, z, y)
    correction = Correction(1.2, np.random.default_rng(2).normal(0, 0.3, C))
    calibrator = Calibrator("by-group", C, parameters_of(method, common.parameters, correction))
    fresh = data(400, seed=1)[0].astype(np.float32)
    keep = steady(calibrator, fresh)
    assert keep.mean() > 0.95
    expected = softmax(calibrator.logits(fresh))
    assert np.abs(expected - common.probabilities(fresh)).max() > 0.05
    np.testing.assert_allclose(run(calibrator, fresh, "probabilities")[keep], expected[keep], atol=1e-5)


def test_bins_that_begin_behind_a_number_keep_it_in_the_bin_below() -> None:
    calibrator = bins_like_netcal()
    z = np.array([[0.0, 0.0, -80.0, -80.0, -80.0]])  # p = 0.5 exactly for two classes
    q = calibrator.probabilities(z)
    np.testing.assert_allclose(run(calibrator, z, "probabilities"), q, atol=1e-6)
    np.testing.assert_allclose(q[0, :2], [0.3 / 0.75] * 2)


def test_thresholds_round_up_so_that_float32_compares_as_float64() -> None:
    x = np.concatenate([np.random.default_rng(0).uniform(0, 1, 2000), [0.5, 0.1, 1 / 3, np.nextafter(0.5, 1)]])
    up = rounded_up(x)
    for p in (up.astype(np.float32), np.nextafter(up.astype(np.float32), np.float32(0))):
        np.testing.assert_array_equal(p.astype(np.float64) >= x, p >= up.astype(np.float32))


def test_knots_closer_than_float32_do_not_overshoot() -> None:
    x, y = [0.1, 0.4, 0.4 + 1e-12, 0.9], [0.0, 0.2, 0.8, 0.9]
    calibrator = Calibrator("isotonic", 2, {"x": [x, x], "y": [y, y], "kind": "linear"})
    p = np.linspace(0.01, 0.99, 200)
    z = np.log(np.stack([p, 1 - p], axis=1))
    keep = steady(calibrator, z)
    got = run(calibrator, z, "probabilities")[keep]
    np.testing.assert_allclose(got, calibrator.probabilities(z)[keep], atol=1e-5)


@pytest.mark.parametrize("method", ["isotonic", "beta", "histogram", "ensemble-temperature", "structured"])
def test_any_calibrator_in_a_deployed_file_with_a_prior(deployed: Path, tmp_path: Path, method: str) -> None:
    z, y = data(300)
    calibrator = fit(method, z, y)
    path = tmp_path / "m.onnx"
    edit.recalibrate(deployed, calibrator, out=path)
    edit.adjust(path, 1.0)
    images = pixels(32, seed=8)
    raw = session(deployed).run(["logits"], {"images": images})[0]
    shift = Prior(PRIOR, None, 0.0, 1.0).shift()
    keep = steady(calibrator, raw)
    got = session(path).run(["probabilities"], {"images": images})[0]
    np.testing.assert_allclose(got[keep], softmax(calibrator.logits(raw) - shift)[keep], atol=1e-5)
    assert json.loads(calibrator.to_json())["method"] == method


def test_a_calibrator_of_other_classes_is_refused() -> None:
    with pytest.raises(ModelError, match="maps 4 classes, the model has 3"):
        tail_steps(3, calibrator=Calibrator("temperature", 4, {"temperature": 2.0}))


@pytest.mark.parametrize("method", ["isotonic", "histogram", "beta"])
def test_exporting_with_a_bent_calibrator_agrees_with_torch(
    exported: Callable[..., tuple[Path, ModelCard]], method: str
) -> None:
    _, card = exported(calibrator=fit(method, *data(300)), adjust=1.0, images=pixels(64))
    assert card.verify is not None
    assert card.verify["passed"]


def test_a_row_of_equal_logits_lies_on_a_knot_at_one_third() -> None:
    histogram = Calibrator("histogram", 3, {"edges": [[0.0, 1 / 3, 1.0]] * 3, "values": [[0.1, 0.6]] * 3})
    z = np.array([[-6.0, -6.0, -6.0], [2.0, 0.0, -2.0], [0.0, 3.0, 1.0], [1.0, 1.0, -1.0]])
    np.testing.assert_array_equal(steady_rows(histogram.logits, z), [False, True, True, True])
