"""What the files hold, read once for each state of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calibrant.dashboard.folder.contents import read_log
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.views.tokens import counts, table_of

from ..conftest import write_run, write_tokens


def test_a_newer_predictions_format_is_refused_by_its_number(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=30)
    file = tmp_path / "a/predictions/test.parquet"
    table = pq.read_table(file)
    block = json.loads(table.schema.metadata[b"calibrant"])
    table = table.replace_schema_metadata({b"calibrant": json.dumps({**block, "format_version": 7})})
    pq.write_table(table, file)
    (trouble,) = scan(tmp_path).troubles
    assert "format 7 is newer" in trouble.what


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=30)
    assert scan(tmp_path).runs[0].predictions[0].rows == 30
    write_run(tmp_path / "a", rows=31)
    assert scan(tmp_path).runs[0].predictions[0].rows == 31


def test_a_log_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"epoch": 1}\n[3]\n{"epoch": 2}\n{"epoch": 3, "val"')
    assert read_log(file) == [{"epoch": 1}, {"epoch": 2}]


def test_token_pictures_belong_to_their_run(tmp_path: Path) -> None:
    write_tokens(write_run(tmp_path / "vit", rows=20), ("a", "b"))
    gallery = scan(tmp_path).runs[0].tokens
    assert gallery is not None
    assert (gallery.method, gallery.blocks, gallery.grid, gallery.merged) == ("evit", (3, 6, 9), (14, 14), False)
    assert [p.path.name for p in gallery.pictures] == ["000.png", "001.png", "002.png", "003.png"]
    table = counts(gallery)
    assert table["block"].tolist() == [0, 4, 7, 10]
    assert table["tokens"].tolist() == [196.0, 96.5, 47.5, 25.0]
    assert table_of(gallery)["tokens after block 7"].tolist() == [49, 48, 47, 46]


def test_a_picture_outside_of_the_folder_is_never_named(tmp_path: Path) -> None:
    file = write_tokens(write_run(tmp_path / "runs" / "vit", rows=20), ("a", "b"))
    (tmp_path / "secret.png").write_bytes(b"x")
    block = json.loads(file.read_text())
    block["pictures"][0]["file"] = "../../../secret.png"
    file.write_text(json.dumps(block))
    gallery = scan(tmp_path / "runs").runs[0].tokens
    assert gallery is not None
    assert gallery.pictures[0].path == file.with_name("secret.png")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format_version": 2}, "newer"),
        ({"grid": [1]}, "does not describe"),
        ({"pictures": [{}]}, "does not describe"),
        ({"class_names": []}, "does not describe"),
        ({"kind": "x"}, "does not describe"),
    ],
)
def test_token_pictures_that_cannot_be_read_are_named_and_the_run_stays(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    file = write_tokens(write_run(tmp_path / "vit", rows=20), ("a", "b"))
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    folder_index = scan(tmp_path)
    assert folder_index.runs[0].tokens is None
    assert len(folder_index.runs[0].predictions) == 2
    (trouble,) = folder_index.troubles
    assert trouble.where == "vit/tokens/tokens.json"
    assert says in trouble.what
