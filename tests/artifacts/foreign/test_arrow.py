"""Parquet with the very types that pandas, polars and datasets write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.artifacts.foreign.arrow import from_table, read_parquet
from calibrant.errors import DataError, FormatError

Z = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()), pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 3),
        pa.list_(pa.float16(), 3), pa.list_(pa.float16()),
    ],
)  # fmt: skip
def test_every_kind_of_list_is_a_matrix(kind: Any) -> None:
    half = kind.value_type == pa.float16()
    rows = [[np.float16(v) for v in row] for row in Z] if half else Z.tolist()
    column = from_table(pa.table({"logits": pa.array(rows, kind)}), Path("p")).values["logits"]
    np.testing.assert_array_equal(column, Z.astype(np.float16) if half else Z)


def test_the_types_of_pandas_and_polars_are_read() -> None:
    table = pa.table(
        {
            "label": pa.array([1.0, None], pa.float64()),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "name": pa.array(["x", None], pa.large_string()),
            "known": pa.array([True, False]),
            "many": pa.array([["cat"], ["cat", "dog"]]),
        }
    )
    found = from_table(table, Path("p")).values
    assert np.isnan(found["label"][1])
    assert found["kind"].tolist() == ["a", "b"]
    assert found["name"].tolist() == ["x", None]
    assert found["known"].tolist() == [1, 0]
    assert found["many"].tolist() == [("cat",), ("cat", "dog")]


def test_class_names_stand_where_datasets_puts_them() -> None:
    info = {"info": {"features": {"label": {"names": ["ash", "elm"], "_type": "ClassLabel"}}}}
    table = pa.table({"label": [0, 1]}).replace_schema_metadata({"huggingface": json.dumps(info)})
    assert from_table(table, Path("p")).class_names == ("ash", "elm")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0, 2.0], [1.0]], "has 1 values, others 2, in row 2"),
        ([[1.0, 2.0], None], "is empty in row 2"),
        ([[1.0, 2.0], [1.0, None]], "empty entry in row 2"),
    ],
)
def test_a_row_that_does_not_fit_is_named(rows: list[Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        from_table(pa.table({"logits": pa.array(rows, pa.list_(pa.float64()))}), Path("p"))


def test_shards_are_one_table_in_order_of_name(tmp_path: Path) -> None:
    for k in (1, 0):
        pq.write_table(pa.table({"s": [float(k)]}), tmp_path / f"part-{k}.parquet")
    assert read_parquet(tmp_path).values["s"].tolist() == [0.0, 1.0]
    pq.write_table(pa.table({"t": [1.0]}), tmp_path / "part-2.parquet")
    with pytest.raises(DataError, match="other columns"):
        read_parquet(tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_bytes(b"PAR1" + bytes(40))
    with pytest.raises(FormatError, match="damaged"):
        read_parquet(tmp_path / "p.parquet")


@pytest.mark.parametrize(
    "kind", [pa.struct([("a", pa.float64()), ("b", pa.float64())]), pa.map_(pa.string(), pa.float64())]
)
def test_a_table_by_class_is_a_column_for_each(kind: Any) -> None:
    rows: Any = [{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}]
    if pa.types.is_map(kind):
        rows = [list(row.items()) for row in rows]
    found = from_table(pa.table({"p": pa.array(rows, kind)}), Path("p.parquet")).values
    assert {name: column.tolist() for name, column in found.items()} == {"p.a": [0.25, 1.0], "p.b": [0.75, 0.0]}
