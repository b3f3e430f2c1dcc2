from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.predictions import Predictions
from calibrant.dashboard.folder.index import scan

from ..conftest import logits_and_labels, source, write_run
from ..labelled import write_labels


def names(found: object) -> list[str]:
    return [item.name for item in found]  # type: ignore[attr-defined]


def test_runs_predictions_and_calibrators_are_found_at_any_depth(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=50)
    write_run(tmp_path / "team" / "b", rows=40)
    folder_index = scan(tmp_path)
    assert names(folder_index.runs) == ["a", "team/b"]
    assert names(folder_index.runs[1].predictions) == ["test", "val"]
    assert [p.rows for p in folder_index.runs[1].predictions] == [40, 40]
    assert names(folder_index.calibrators) == ["a/calibrator.json", "team/b/calibrator.json"]
    assert folder_index.troubles == ()


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
    folder_index = scan(tmp_path)
    for run in folder_index.runs:
        assert names(folder_index.calibrators_for(run, run.predictions[0])) == [f"{run.name}/calibrator.json"]


def test_a_calibrator_beside_two_runs_is_offered_to_the_one_that_it_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, rows=60, calibrator=name == "a")
    file = tmp_path / "a" / "calibrator.json"
    block = json.loads(file.read_text())
    block["fitted_on"] = {"model": {"sha256": "weights of a"}}
    (tmp_path / "calibrator.json").write_text(json.dumps(block))
    file.unlink()
    folder_index = scan(tmp_path)
    offered = [names(folder_index.calibrators_for(run, run.predictions[0])) for run in folder_index.runs]
    assert offered == [["calibrator.json"], []]


def test_predictions_of_independent_labels_stand_apart_with_their_own_calibrator(tmp_path: Path) -> None:
    write_labels(tmp_path / "many")
    write_run(tmp_path / "many" / "run", rows=60)
    labels, classes = scan(tmp_path).runs
    assert (names(labels.predictions), names(labels.labels)) == ([], ["multi.npz"])
    assert (names(classes.predictions), names(classes.labels)) == (["test", "val"], [])
    file = tmp_path / "many" / "calibrator.json"
    block = json.loads(file.read_text())
    file.write_text(json.dumps({**block, "fitted_on": {}}))  # as one of classes has it
    assert names(scan(tmp_path).calibrators_for(labels, labels.labels[0])) == []
    file.write_text(json.dumps(block))
    assert names(scan(tmp_path).calibrators_for(labels, labels.labels[0])) == ["many/calibrator.json"]


def test_a_calibrator_for_another_number_of_classes_is_not_offered(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=60)
    file = tmp_path / "a" / "calibrator.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "classes": 11}))
    folder_index = scan(tmp_path)
    assert folder_index.calibrators_for(folder_index.runs[0], folder_index.runs[0].predictions[0]) == ()


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
    folder_index = scan(tmp_path)
    assert names(folder_index.runs) == ["good"]
    troubles = {t.where: t.what for t in folder_index.troubles}
    assert set(troubles) == {
        "foreign.parquet", "half.parquet", "newer/calibrator.json", "cut-calibrator.json", "model.onnx",
    }  # fmt: skip
    assert "no column of scores (it has x)" in troubles["foreign.parquet"]
    assert "99 is newer" in troubles["newer/calibrator.json"]


# ---- token pictures ----


def test_predictions_of_other_tools_are_found_and_other_tables_left_alone(tmp_path: Path) -> None:
    logits, labels = logits_and_labels(40, seed=0)
    np.savez(tmp_path / "mine.npz", logits=logits, labels=labels)
    np.save(tmp_path / "other_logits.npy", logits)
    np.save(tmp_path / "other_labels.npy", labels)
    (tmp_path / "prices.csv").write_text("name,unit\nash,m3\n")
    (tmp_path / "few.csv").write_text("a,b,label\n0.5,0.5,0\n")
    folder_index = scan(tmp_path)
    assert names(folder_index.runs[0].predictions) == ["mine.npz", "other_logits.npy"]
    assert [t.where for t in folder_index.troubles] == ["few.csv"]
    assert "too few" in folder_index.troubles[0].what


def test_a_feedback_log_is_one_before_and_after_it_was_compacted(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path / "leaves" / "log")
    writer.predictions(Model("m", "1", "ab", ("a", "b")), ["x"], [1.0], np.zeros((1, 2), np.float32))
    writer.close()
    for _ in range(2):
        found = scan(tmp_path)
        assert [ref.name for ref in found.feedback] == ["leaves/log"]
        assert not found.runs
        assert not found.troubles
        compact(tmp_path / "leaves" / "log")
