import numpy as np

from calibrant.calibration.verdict.case import JudgedRows


def test_fewer_rows_are_a_fair_sample_of_whole_rows():
    z = np.arange(2000.0).reshape(1000, 2)
    rows = JudgedRows(z, z + 1, np.arange(1000) % 2, 1000, groups={"row": list(range(1000))}).fewer(100)
    assert len(rows) == 100
    assert rows.of == 1000
    assert np.array_equal(rows.judged, rows.plain + 1)
    assert np.array_equal(rows.labels, (rows.plain[:, 0] // 2) % 2)
    assert np.array_equal(rows.groups["row"], rows.plain[:, 0] / 2)
    assert 300 < rows.plain[:, 0].mean() / 2 < 700
    assert rows.fewer(100) is rows
