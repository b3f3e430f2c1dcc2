from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.calibration.monitoring.alarms import served_log_p
from calibrant.serve.monitor.served_rows import RecentRows, ServedRows

MODEL = feedback.Model("birds", "1", "sha", ("auk", "bittern", "crane"))


def test_what_memory_forgets_is_in_the_log_to_the_last_bit(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    ids = [f"r{n}" for n in range(4)]
    writer = FeedbackWriter(tmp_path)
    rows = ServedRows(MODEL)
    rows.logged(*writer.predictions(MODEL, ids, [0.0] * 4, logits), ids)
    rows.add(ids, served_log_p(logits))
    writer.close()
    recent = [rows.find(id_) for id_ in ids]
    rows.forget_recent()
    for before, after in zip(recent, [rows.find(id_) for id_ in ids], strict=True):
        assert before is not None
        assert after is not None
        np.testing.assert_array_equal(before.log_p, after.log_p)
    assert rows.find("r9") is None


def test_a_row_of_another_file_is_known_and_has_no_figures(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    older = feedback.Model("birds", "1", "older", MODEL.classes)
    rows = ServedRows(MODEL)
    rows.logged(*writer.predictions(older, ["a"], [0.0], np.zeros((1, 3), np.float32)), ["a"])
    writer.close()
    found = rows.find("a")
    assert found is not None
    assert found.log_p is None


def test_the_first_row_of_an_id_counts_and_memory_is_bounded() -> None:
    wide = feedback.Model("wide", "1", "sha", tuple(map(str, range(200_000))))  # 800 kB a row, so the least: 100 rows
    rows = ServedRows(wide)
    for n in range(101):
        rows.add([f"r{n}"], np.full((1, 4), float(n)))
    rows.add(["r100"], np.zeros((1, 4)))
    assert rows.find("r0") is None
    found = rows.find("r100")
    assert found is not None
    assert found.log_p is not None
    assert found.log_p.tolist() == [100.0] * 4


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
