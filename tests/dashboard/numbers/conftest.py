"""One run of 4,000 rows with a calibrator, as it is and through it."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.dashboard.folder.artifacts import Run
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers.predictions_through import Scored

from ..conftest import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Scored, Scored]:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "a", rows=4000, seed=3)
    folder_index = scan(root)
    found = folder_index.runs[0]
    test = found.find("test")
    assert test is not None
    (calibrator,) = folder_index.calibrators_for(found, test)
    return found, Scored.of(test), Scored.of(test, calibrator)


@pytest.fixture(scope="module")
def probabilities(run: tuple[Run, Scored, Scored]) -> tuple[np.ndarray, np.ndarray]:
    """After calibration: before it every bin errs to the same side, and ECE is the same for any number of bins."""
    after = run[2]
    data = read_predictions(after.path.path)
    return after.formula().probabilities(data.logits), data.labels
