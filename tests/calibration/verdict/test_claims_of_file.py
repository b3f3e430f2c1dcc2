import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration import fit
from calibrant.calibration.verdict.claims_of_file import claims_of_file
from calibrant.errors import DataError


def write(path, logits, labels):
    ids = tuple(map(str, range(len(logits))))
    Predictions(ids, np.array(labels), np.array(logits, np.float32), Source(("auk", "crane"))).write(path)
    return path


def test_bins_hold_shares_and_mean_claims_and_rows_need_no_label(tmp_path):
    z = [[np.log(0.9 / 0.1), 0.0]] * 3 + [[np.log(0.6 / 0.4), 0.0]]
    found = claims_of_file(write(tmp_path / "p.parquet", z, [0, -1, 0, -1]), bins=10)
    assert (found.rows, found.labelled) == (4, 2)
    assert found.claims.share == pytest.approx([0.25, 0.75])
    assert found.claims.confidence == pytest.approx([0.6, 0.9])


def test_through_a_calibrator_the_claims_are_its_own(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 500)
    z = 6 * (np.eye(2)[y] + rng.normal(size=(500, 2)))
    path = write(tmp_path / "p.parquet", z, y)
    fit("temperature", z, y).save(tmp_path / "c.json")
    plain, through = claims_of_file(path).claims, claims_of_file(path, tmp_path / "c.json").claims
    assert through.share @ through.confidence < plain.share @ plain.confidence - 0.1


def test_no_rows_are_refused(tmp_path):
    with pytest.raises(DataError):
        claims_of_file(write(tmp_path / "p.parquet", np.empty((0, 2)), []))
