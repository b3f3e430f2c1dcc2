"""A run that lies there is an object too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.api.run import Run
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.errors import DataError


def test_a_folder_of_predictions_can_be_fitted_and_judged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split in ("val", "test"):
        z = rng.normal(size=(120, 3)).astype(np.float32) * 4
        ids = tuple(f"{split}{n}" for n in range(120))
        rows = Predictions(ids, rng.integers(0, 3, 120), z, Source(("a", "b", "c")))
        (tmp_path / "predictions").mkdir(exist_ok=True)
        rows.write(tmp_path / "predictions" / f"{split}.parquet")
    run = Run(tmp_path)
    assert run.splits == ("test", "val")
    assert run.predictions("test").ids[0] == "test0"
    assert run.fit().fitted_on["path"] == "val.parquet"
    assert run.evaluate().evaluation.rows == 120
    assert run.evaluate().metrics["nll"] != run.evaluate("val").metrics["nll"]
    assert "predictions of test, val" in repr(run)
    with pytest.raises(DataError, match="no predictions of train; it has test, val"):
        run.predictions("train")
