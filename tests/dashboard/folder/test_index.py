from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.artifacts.predictions import Predictions
from calibrant.dashboard.folder import files
from calibrant.dashboard.folder.contents import read_log
from calibrant.dashboard.folder.files import inside
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.views.tokens import counts, table_of

from ..conftest import logits_and_labels, source, write_run, write_tokens


def names(found: object) -> list[str]:
    return [item.name for item in found]  # type: ignore[attr-defined]


def test_runs_predictions_and_calibrators_are_found_at_any_depth(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=50)
    write_run(tmp_path / "team" / "b", rows=40)
    shelf = scan(tmp_path)
    assert names(shelf.runs) == ["a", "team/b"]
    assert names(shelf.runs[1].predictions) == ["test", "val"]
    assert [p.rows for p in shelf.runs[1].predictions] == [40, 40]
    assert names(shelf.calibrators) == ["a/calibrator.json", "team/b/calibrator.json"]
    assert shelf.troubles == ()


def test_the_folder_itself_may_be_a_run(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    write_run(root, rows=30)
    run = scan(root).runs[0]
    assert run.name == "demo"
    assert run.best().name == "test"  # type: ignore[union-attr]


def test_a_folder_of_shards_below_predictions_is_one_set(tmp_path: Path) -> None:
    for k in range(3):
        logits, labels = logits_and_labels(20, seed=k)
        ids = tuple(f"{k}-{i}" for i in range(20))
        Predictions(ids, labels, logits, source()).write(tmp_path / "r/predictions/test" / f"part-{k:03d}.parquet")
    run = scan(tmp_path).runs[0]
    assert (run.name, run.predictions[0].name, run.predictions[0].rows) == ("r", "test", 60)


def test_a_calibrator_is_offered_only_to_its_own_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, rows=60)
    shelf = scan(tmp_path)
    for run in shelf.runs:
        assert names(shelf.calibrators_for(run, run.predictions[0])) == [f"{run.name}/calibrator.json"]


def test_a_calibrator_for_another_number_of_classes_is_not_offered(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=60)
    file = tmp_path / "a" / "calibrator.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "classes": 11}))
    shelf = scan(tmp_path)
    assert shelf.calibrators_for(shelf.runs[0], shelf.runs[0].predictions[0]) == ()


def test_what_cannot_be_read_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    write_run(tmp_path / "good", rows=30)
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "foreign.parquet")
    (tmp_path / "half.parquet").write_bytes((tmp_path / "good/predictions/test.parquet").read_bytes()[:3000])
    newer = tmp_path / "newer"
    newer.mkdir()
    block = json.loads((tmp_path / "good" / "calibrator.json").read_text())
    (newer / "calibrator.json").write_text(json.dumps({**block, "format_version": 99}))
    (tmp_path / "cut-calibrator.json").write_text('{"kind": "calibrator", "for')
    (tmp_path / "model.onnx").write_bytes(b"\x00not onnx")
    shelf = scan(tmp_path)
    assert names(shelf.runs) == ["good"]
    troubles = {t.where: t.what for t in shelf.troubles}
    assert set(troubles) == {
        "foreign.parquet", "half.parquet", "newer/calibrator.json", "cut-calibrator.json", "model.onnx",
    }  # fmt: skip
    assert "no column `logits`" in troubles["foreign.parquet"]
    assert "99 is newer" in troubles["newer/calibrator.json"]


def test_a_newer_predictions_format_is_refused_by_its_number(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=30)
    file = tmp_path / "a/predictions/test.parquet"
    table = pq.read_table(file)
    block = json.loads(table.schema.metadata[b"calibrant"])
    table = table.replace_schema_metadata({b"calibrant": json.dumps({**block, "format_version": 7})})
    pq.write_table(table, file)
    (trouble,) = scan(tmp_path).troubles
    assert "format 7 is newer" in trouble.what


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside", rows=20)
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.parquet").symlink_to(outside / "predictions/test.parquet")
    (root / "folder").symlink_to(outside)
    shelf = scan(root)
    assert shelf.runs == ()
    assert [t.where for t in shelf.troubles] == ["link.parquet"]


def test_inside_follows_links_and_dots(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "a" / "file").write_text("x")
    assert inside(tmp_path / "a", tmp_path / "a" / "file")
    assert not inside(tmp_path / "a", tmp_path / "a" / "link")
    assert not inside(tmp_path / "a", tmp_path / "a" / ".." / "secret")
    assert not inside(tmp_path / "a", tmp_path / "a" / "missing")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=30)
    assert scan(tmp_path).runs[0].predictions[0].rows == 30
    write_run(tmp_path / "a", rows=31)
    assert scan(tmp_path).runs[0].predictions[0].rows == 31


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a", rows=10)
    old = time.time() - 60
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "predictions"):
        os.utime(folder, (old, old))
    scan(tmp_path)
    listed: list[Path] = []
    real = os.scandir
    monkeypatch.setattr(files.os, "scandir", lambda p: listed.append(Path(p)) or real(p))
    scan(tmp_path)
    assert listed == []
    (tmp_path / "a" / "new.json").write_text("{}")
    scan(tmp_path)
    assert listed == [tmp_path / "a"]


def test_a_log_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"epoch": 1}\n[3]\n{"epoch": 2}\n{"epoch": 3, "val"')
    assert read_log(file) == [{"epoch": 1}, {"epoch": 2}]


# ---- token pictures ----


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
    shelf = scan(tmp_path)
    assert shelf.runs[0].tokens is None
    assert len(shelf.runs[0].predictions) == 2
    (trouble,) = shelf.troubles
    assert trouble.where == "vit/tokens/tokens.json"
    assert says in trouble.what
