"""What a file says about its model, in words that later versions read."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.artifacts.predictions import Source, read_predictions
from calibrant.errors import FormatError
from tests.artifacts.predictions.conftest import Some


def test_a_newer_format_is_refused_by_name(tmp_path: Path, some: Some) -> None:
    import pyarrow.parquet as pq

    some().write(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    text = table.schema.metadata[b"calibrant"].replace(b'"format_version": 1', b'"format_version": 99')
    pq.write_table(table.replace_schema_metadata({b"calibrant": text}), tmp_path / "new.parquet")
    with pytest.raises(FormatError, match="format 99 is newer"):
        read_predictions(tmp_path / "new.parquet")


def test_what_a_source_says_comes_back(some: Some) -> None:
    source = some().source
    assert Source.from_json(source.to_json(), where="here") == source


def test_a_prior_of_other_length_than_the_classes_is_named(some: Some) -> None:
    text = some().source.to_json().replace('"k2"', '"k2", "k3"')
    with pytest.raises(FormatError, match="here: train_prior has 3 values for 4 classes"):
        Source.from_json(text, where="here")
