"""A deployed file's sets and threshold are fitted again for the prior it corrects to, or not given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.conformal.holding import set_blocks
from calibrant.calibration.conformal.sets import fit_conformal
from calibrant.calibration.decisions import Decisions
from calibrant.calibration.fitting import fit_file
from calibrant.calibration.formula import Formula
from calibrant.errors import DataError
from calibrant.export import edit
from calibrant.export.checks.card_text import rows

from .conftest import CLASSES, PRIOR

C = len(CLASSES)


def drawn(n: int, prior: NDArray[np.float64], seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits of the exact p(y | x) under PRIOR, twice too sharp; rows with class shares `prior`."""
    rng = np.random.default_rng(seed)
    y = rng.choice(C, n, p=prior)
    x = rng.normal(size=(n, C)) + 1.4 * np.eye(C)[y]
    return (2 * (1.4 * x + np.log(PRIOR))).astype(np.float32), y


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    z, y = drawn(2000, np.array(PRIOR), 0)
    path = tmp_path / "val.parquet"
    Predictions(tuple(map(str, range(len(y)))), y, z, Source(CLASSES, train_prior=PRIOR)).write(path)
    return path


@pytest.fixture
def model(deployed: Path, labelled: Path, tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    edit.recalibrate(deployed, fit_file(labelled, decisions=Decisions((0.1,), risk=0.2)), out=path)
    return path


def test_sets_of_another_prior_are_not_given_and_come_back_with_their_own(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card = edit.adjust(model, 1.0)
    assert "prediction sets were fitted for another class prior" in caplog.text
    assert (dict(set_blocks(card)), card.abstain_below) == ({}, None)
    assert dict(rows(card))["prediction sets"] == "none given: fitted for another class prior"
    assert set(set_blocks(edit.adjust(model, 0.0))) == {"0.1"}


def test_labelled_rows_fit_them_again_for_the_new_prior(model: Path, labelled: Path) -> None:
    card = edit.adjust(model, 1.0, labelled=labelled)
    block = set_blocks(card)["0.1"]
    assert len(block["class_thresholds"]) == C
    assert block["effective_rows"] < 2000
    assert card.abstain_below is not None
    z, y = drawn(20000, np.full(C, 1 / C), 1)
    p = Formula.of_card(card).probabilities(z)
    inside = 1 - p <= np.array(block["class_thresholds"])
    assert inside[np.arange(len(y)), y].mean() == pytest.approx(0.9, abs=0.025)
    answered = p.max(axis=1) >= card.abstain_below
    assert (p.argmax(axis=1) != y)[answered].mean() <= 0.2


def test_a_file_that_was_adjusted_before_is_mended_by_labelled_rows_alone(model: Path, labelled: Path) -> None:
    edit.adjust(model, 1.0)
    assert set(set_blocks(edit.adjust(model, labelled=labelled))) == {"0.1"}


def test_rows_of_other_classes_are_refused(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    Predictions(("a",), np.array([0]), np.zeros((1, C), np.float32), Source(CLASSES[::-1])).write(other)
    with pytest.raises(DataError, match="other classes"):
        edit.adjust(model, 1.0, labelled=other)


def test_calibrate_fits_sets_for_a_place_of_use_of_other_shares(labelled: Path) -> None:
    found = fit_file(labelled, adjust=1.0, rows_follow="train", decisions=Decisions((0.1,)))
    assert found.conformal is not None
    z, y = drawn(20000, np.full(C, 1 / C), 2)
    p = Formula(C, found, found.prior or pytest.fail("no prior")).probabilities(z)
    inside = 1 - p <= np.array(found.conformal["0.1"]["class_thresholds"])
    assert inside[np.arange(len(y)), y].mean() == pytest.approx(0.9, abs=0.025)


def test_rows_that_the_map_was_fitted_on_are_judged_by_maps_that_have_not_seen_them(
    deployed: Path, tmp_path: Path
) -> None:
    """An isotonic map of 300 rows knows them too well: thresholds from them as they are promise more than they hold."""
    sets = {}
    for seed in (0, 1):
        z, y = drawn(300, np.array(PRIOR), seed)
        sets[seed] = Predictions(tuple(map(str, range(300))), y, z, Source(CLASSES, train_prior=PRIOR))
        sets[seed].write(tmp_path / f"{seed}.parquet")
    fitted = fit_file(tmp_path / "0.parquet", "isotonic", decisions=Decisions((0.1,)), options={"mixture": False})
    edit.recalibrate(deployed, fitted, out=tmp_path / "m.onnx")

    def threshold(seed: int) -> float:
        card = edit.adjust(tmp_path / "m.onnx", 0.0, labelled=tmp_path / f"{seed}.parquet")
        return float(set_blocks(card)["0.1"]["threshold"])

    as_it_is = {
        k: fit_conformal(fitted.probabilities(d.logits), d.labels, alpha=0.1).threshold for k, d in sets.items()
    }
    assert fitted.conformal is not None
    assert threshold(0) == pytest.approx(fitted.conformal["0.1"]["threshold"], abs=1e-9)  # of maps of the other folds
    assert threshold(0) > as_it_is[0] + 0.01
    assert threshold(1) == pytest.approx(as_it_is[1], abs=1e-9)  # rows that it has not seen
