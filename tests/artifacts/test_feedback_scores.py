from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from calibrant.artifacts import feedback_parquet
from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_records import PARQUET, records
from calibrant.artifacts.feedback_scores import decode, encode, joined
from calibrant.artifacts.feedback_writer import FeedbackWriter

SCORES = np.array([[1.5, -2, 3], [np.nan, np.nan, np.nan]], np.float32)


def _model(scores: int | None) -> Model:
    return Model("birds", "1", "abc", ("a", "b"), watch={"features": None if scores is None else {"scores": scores}})


def test_scores_come_back_to_the_bit_and_none_take_no_room() -> None:
    record = {"ids": ["x", "y"], **encode(SCORES)}
    np.testing.assert_array_equal(decode(record), SCORES)
    assert encode(None) == encode(np.full((4, 3), np.nan, np.float32)) == {}
    assert decode({"ids": ["x"]}) is None


def test_rows_without_scores_or_with_others_are_nan() -> None:
    got = joined([(2, SCORES), (1, None), (1, np.zeros((1, 5), np.float32))], 3)
    np.testing.assert_array_equal(got[0], SCORES[0])
    assert np.isnan(got[1:]).all()
    assert got.shape == (4, 3)
    assert joined([(2, None)], 0).shape == (2, 0)


def test_a_log_gives_scores_in_the_order_of_its_rows_also_of_requests_that_came_twice(tmp_path: Path) -> None:
    writer, logits = FeedbackWriter(tmp_path), np.zeros((2, 2), np.float32)
    writer.predictions(_model(3), ["a", "b"], [1.0, 2.0], logits, scores=SCORES)
    writer.predictions(_model(3), ["a", "c"], [3.0, 4.0], logits, scores=SCORES[:1] + np.array([[1], [2]], np.float32))
    writer.close()
    (served,) = read_feedback(tmp_path).served
    assert served.ids == ("a", "b", "c")
    np.testing.assert_array_equal(served.scores[:, 0], np.array([1.5, np.nan, 3.5], np.float32))
    np.testing.assert_array_equal(served.traffic_scores[:, 0], np.array([1.5, np.nan, 2.5, 3.5], np.float32))


def test_where_features_are_not_watched_a_row_has_no_scores(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(_model(None), ["a", "b"], [1.0, 2.0], np.zeros((2, 2), np.float32), scores=SCORES)
    writer.close()
    (served,) = read_feedback(tmp_path).served
    assert served.scores.shape == served.traffic_scores.shape == (2, 0)


def test_a_table_from_before_features_were_watched_is_read(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(_model(None), ["a", "b"], [1.0, 2.0], np.ones((2, 2), np.float32))
    writer.close()
    compact(tmp_path)
    (path,) = tmp_path.glob(f"*{PARQUET}")
    kept = pq.read_table(path).drop_columns(["feature_scores"])
    said = pq.read_metadata(path).metadata[feedback_parquet.KEY]
    with pq.ParquetWriter(path, kept.schema) as old:
        old.write_table(kept)
        old.add_key_value_metadata({feedback_parquet.KEY: said})
    assert "feature_scores" not in pq.read_schema(path).names
    assert [r["ids"] for _, r in records(path) if r["record"] == "predictions"] == [["a", "b"]]
