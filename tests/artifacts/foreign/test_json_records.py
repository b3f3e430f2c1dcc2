"""JSON lines as Python and others write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.json_records import read_json, read_json_lines
from calibrant.errors import DataError, FormatError


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_lines_are_records(tmp_path: Path) -> None:
    text = '{"id": "a", "logits": [1.5, -2], "label": 1}\n\n{"id": "b", "logits": [0, -Infinity]}\n'
    found = read_json_lines(write(tmp_path / "p.jsonl", text)).values
    assert found["id"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(found["logits"], [[1.5, -2], [0, -np.inf]])
    assert np.isnan(found["label"][1])


def test_a_table_by_class_is_a_column_for_each(tmp_path: Path) -> None:
    text = '{"probabilities": {"cat": 0.2, "dog": 0.8}}\n{"probabilities": {"dog": 0.5, "cat": 0.5}}\n'
    found = read_json_lines(write(tmp_path / "p.jsonl", text)).values
    assert found["probabilities.cat"].tolist() == [0.2, 0.5]
    assert found["probabilities.dog"].tolist() == [0.8, 0.5]


def test_what_pipelines_of_hugging_face_give_is_a_column_for_each_class(tmp_path: Path) -> None:
    """The surest label first, so another order in each row."""
    (tmp_path / "p.jsonl").write_text(
        '{"scores": [{"label": "dog", "score": 0.7}, {"label": "cat", "score": 0.3}], "label": "cat"}\n'
        '{"scores": [{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}], "label": "cat"}\n'
    )
    found = read_json_lines(tmp_path / "p.jsonl").values
    assert list(found) == ["scores.cat", "scores.dog", "label"]
    np.testing.assert_array_equal(found["scores.cat"], [0.3, 0.9])


def test_records_and_columns_of_one_file(tmp_path: Path) -> None:
    records = read_json(write(tmp_path / "r.json", '[{"logits": [1, 2]}, {"logits": [3, 4]}]'))
    columns = read_json(write(tmp_path / "c.json", '{"logits": [[1, 2], [3, 4]]}'))
    np.testing.assert_array_equal(records.values["logits"], columns.values["logits"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"logits": [1, 2]}\n{"logits": [1, 2', "line 2 is not JSON"),
        ('{"logits": [1.0, 2]}\n{"logits": [1.0]}\n', "row 2"),
        ("[1, 2]\n", "line 1 is no JSON object"),
        ("", "no rows"),
    ],
)
def test_the_line_that_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises((DataError, FormatError), match=says):
        read_json_lines(write(tmp_path / "p.jsonl", text))
