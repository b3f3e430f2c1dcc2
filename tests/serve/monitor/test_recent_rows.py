from __future__ import annotations

import numpy as np

from calibrant.serve.monitor.recent_rows import RecentRows, rows_kept


def test_the_first_row_of_an_id_counts_and_memory_is_bounded() -> None:
    rows = RecentRows(rows_kept(200_000))  # 800 kB a row, so the least: 100 rows
    for n in range(101):
        rows.add([f"r{n}"], np.full((1, 4), float(n)))
    rows.add(["r100"], np.zeros((1, 4)))
    assert rows.get("r0") is None
    found = rows.get("r100")
    assert found is not None
    assert found.tolist() == [100.0] * 4
    assert (rows_kept(10), rows_kept(1000)) == (20_000, 4194)


def test_recent_rows_are_those_of_a_dict_that_forgets_its_oldest() -> None:
    rng, rows, expected = np.random.default_rng(0), RecentRows(50), dict[str, np.ndarray]()
    for _ in range(400):
        ids = [f"r{k}" for k in rng.integers(0, 400, rng.integers(1, 8))]
        values = rng.normal(size=(len(ids), 3)).astype(np.float32)
        rows.add(ids, values.astype(np.float64))
        for id_, row in zip(ids, values, strict=True):
            if id_ not in expected:
                expected[id_] = row
                if len(expected) > 50:
                    expected.pop(next(iter(expected)))
        for k in range(400):
            found, wanted = rows.get(f"r{k}"), expected.get(f"r{k}")
            assert (found is None) == (wanted is None)
            assert found is None or found.tolist() == wanted.tolist()


def test_a_row_that_was_found_stays_when_its_place_is_taken() -> None:
    rows = RecentRows(2)
    rows.add(["a", "b"], np.array([[1.0], [2.0]]))
    found = rows.get("a")
    rows.add(["c", "d"], np.array([[3.0], [4.0]]))
    assert found is not None
    assert (found.tolist(), rows.get("a")) == ([1.0], None)
