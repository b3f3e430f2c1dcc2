"""Class shares of served rows, before their labels have come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import read_feedback
from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration.formula import Formula
from calibrant.calibration.label_shift import estimate_prior
from calibrant.dashboard.folder.index import scan

from ..conftest import Page, frame, words


def test_the_table_holds_the_estimate_from_held_out_rows(page: Page, folder: Path) -> None:
    (served,) = read_feedback(folder / "leaves/feedback").served
    known = read_predictions(folder / "leaves/predictions/test.parquet").labelled()
    card = scan(folder).models[0].card
    expected = estimate_prior(Formula.of_card(card).logits(known.logits), known.labels, served.logits)
    drawn = page("production", folder, reference="leaves/test")
    table = frame(drawn, "Last rows served, %")
    most = int(np.argmax(np.abs(expected.prior - expected.base)))
    assert table["Class"][0] == card.classes[most]
    assert table["Last rows served, %"][0] == pytest.approx(100 * expected.prior[most], abs=1e-3)
    assert table["95 % from"][0] == pytest.approx(100 * expected.low[most], abs=1e-3)
    assert expected.sentences(card.classes)[0][1:40] in words(drawn)
