import numpy as np

from calibrant.artifacts.predictions import Predictions, PredictionsFile, Source
from calibrant.calibration.verdict.remedies import sample as module
from calibrant.calibration.verdict.remedies.sample import sample


def write(path, rows):
    y = np.arange(rows) % 3
    y[::10] = -1  # no label
    z = np.repeat(np.arange(rows, dtype=np.float32)[:, None], 3, axis=1) - 5
    site = {"site": tuple("odd" if i % 2 else "even" for i in range(rows))}
    Predictions(tuple(map(str, range(rows))), y, z, Source(("a", "b", "c")), groups=site).write(path)
    return PredictionsFile.open(path)


def test_a_small_file_is_taken_whole_without_rows_that_have_no_label(tmp_path):
    found = sample(write(tmp_path / "p.parquet", 100), 90)
    assert (len(found), found.of) == (90, 90)
    assert found.labels.min() == 0
    assert found.plain[0, 0] == -4
    assert found.groups["site"] == ["odd" if i % 2 else "even" for i in range(100) if i % 10]


def test_of_a_large_one_a_fair_part(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 500)
    found = sample(write(tmp_path / "p.parquet", 5000), 4500)
    assert 400 < len(found) < 600
    assert found.of == 4500
    assert 2000 < found.plain[:, 0].mean() < 3000
