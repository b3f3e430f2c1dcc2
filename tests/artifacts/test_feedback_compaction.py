"""Closed segments become tables, and every reader of the log sees what it saw before, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.feedback import Feedback, Model, read_feedback, segments
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_records import PARQUET, SUFFIX, record_at, records
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.commands.root import cli
from calibrant.errors import DataError

MODEL = Model("birds", "1", "abc", tuple("abcdefghij"), watch={"since": 3.5, "features": {"scores": 3}})


def _log(folder: Path, *, blocks: int = 40, kept: Kept | None = None, each: int = 7) -> None:
    """Several segments: answers, some under an id that had one, labels, corrections, chosen labels."""
    rng = np.random.default_rng(1)
    writer = FeedbackWriter(folder, segment_bytes=4000, kept=kept)
    for n in range(blocks):
        ids = [f"{n}/{k}" for k in range(each)] if n % 5 else [f"{max(0, n - 1)}/{k}" for k in range(each)]
        took = None if n % 3 else [1.5, *[None] * (each - 1)]
        logits = rng.normal(size=(each, 10)).astype(np.float32)
        logits[0, 3] = -np.inf
        scores = None if n % 4 == 3 else rng.normal(size=(each, 3)).astype(np.float32)
        if scores is not None:
            scores[1] = np.nan
        writer.predictions(MODEL, ids, [1000.0 + n] * each, logits, latency_ms=took, scores=scores)
        writer.labels("birds", [f"{n // 2}/1", "nobody"], [n % 10, 2], at=2000.0 + n)
        if n % 4 == 0:
            writer.labels("birds", [f"{n}/2"], [1], at=2000.5 + n, chosen=True)
    writer.close()


def _alike(one: Feedback, other: Feedback) -> None:
    assert (one.damaged_lines, one.repeated_ids) == (other.damaged_lines, other.repeated_ids)
    assert one.labels_without_prediction == other.labels_without_prediction
    for a, b in zip(one.served, other.served, strict=True):
        assert (a.model, a.model.watch, a.ids, a.cut) == (b.model, b.model.watch, b.ids, b.cut)
        for name in ("times", "logits", "labels", "latency_ms", "chosen", "scores", "traffic_scores"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        for name in ("rows", "labels", "times"):
            np.testing.assert_array_equal(getattr(a.arrivals, name), getattr(b.arrivals, name))
        np.testing.assert_array_equal(a.again.logits, b.again.logits)


@pytest.mark.parametrize("kept", [None, Kept(half=True), Kept(top=5), Kept(half=True, top=5)])
def test_a_compacted_log_says_the_same_and_takes_less(kept: Kept | None, tmp_path: Path) -> None:
    _log(tmp_path, kept=kept, each=60, blocks=60)
    before, places = read_feedback(tmp_path), [(p, list(records(p))) for p in segments(tmp_path)]
    assert before.repeated_ids > 100
    found = compact(tmp_path)
    assert (found.segments, found.still_open, found.kept) == (len(places), 0, 0)
    assert not list(tmp_path.glob(f"*{SUFFIX}"))
    assert found.bytes_after == sum(p.stat().st_size for p in tmp_path.glob(f"*{PARQUET}"))
    _alike(read_feedback(tmp_path), before)
    for path, lines in places:  # who knows a line by its place in the segment that is gone
        for offset, record in lines:
            copy = record_at(path, offset)
            assert copy is not None
            assert copy["record"] == record["record"]
            assert copy.get("ids") == record.get("ids")
        assert record_at(path, 1) is None
    assert compact(tmp_path).segments == 0


def test_what_a_server_may_append_to_stays_and_what_it_adds_is_read(tmp_path: Path) -> None:
    _log(tmp_path)
    writer = FeedbackWriter(tmp_path)
    writer.predictions(MODEL, ["late"], [1.0], np.zeros((1, 10), np.float32))
    found = compact(tmp_path)
    assert found.still_open == 1
    assert writer.path.exists()
    writer.labels("birds", ["39/5", "late"], [4, 6])  # of an answer that is in a table by now
    writer.close()
    (served,) = read_feedback(tmp_path).served
    labels = dict(zip(served.ids, served.labels.tolist(), strict=True))
    assert (labels["39/5"], labels["late"]) == (4, 6)


def test_evaluate_reads_a_compacted_log_as_it_did_before(tmp_path: Path) -> None:
    _log(tmp_path, blocks=60)

    def said() -> str:
        result = CliRunner().invoke(cli, ["evaluate", str(tmp_path), "--json"], catch_exceptions=False)
        return str(json.loads(result.stdout)["models"])

    before = said()
    compact(tmp_path)
    assert said() == before
    part = segments(tmp_path)[0]
    with pytest.raises(DataError, match="is a part of a feedback log; give the folder"):
        PredictionsFile.open(part)


def test_damaged_lines_are_counted_as_before(tmp_path: Path) -> None:
    _log(tmp_path, blocks=3)
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"record":"predictions","sha2')
    before = read_feedback(tmp_path)
    assert before.damaged_lines == 1
    compact(tmp_path)
    _alike(read_feedback(tmp_path), before)


def test_what_fits_into_no_table_stays_as_it_is(tmp_path: Path) -> None:
    _log(tmp_path, blocks=3)
    (path,) = segments(tmp_path)
    odd = {"record": "labels", "model": "birds", "time": 1.0, "ids": ["x"], "labels": [1], "said by": "Ann"}
    path.write_bytes(path.read_bytes() + json.dumps(odd).encode() + b"\n")
    before = read_feedback(tmp_path)
    assert compact(tmp_path).kept == 1
    assert segments(tmp_path) == [path]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    _alike(read_feedback(tmp_path), before)


def test_retention_goes_by_the_age_of_the_answers_and_removes_both_forms(tmp_path: Path) -> None:
    _log(tmp_path)
    paths = segments(tmp_path)
    old = time.time() - 5 * 86400
    for path in paths[:2]:
        os.utime(path, (old, old))
    copy = paths[0].read_bytes()
    compact(tmp_path)
    paths[0].write_bytes(copy)  # as a kill may leave it
    writer = FeedbackWriter(tmp_path, keep_days=3)
    names = {p.name for p in tmp_path.iterdir()}
    assert not any(n.startswith(p.name.removesuffix(SUFFIX)) for n in names for p in paths[:2])
    assert len(names) == len(paths) - 2 + 1
    writer.close()


def test_a_segment_never_takes_the_name_of_one_that_was_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every server has the same process id, and a restart may take less than a second."""
    monkeypatch.setattr(time, "strftime", lambda *_: "20300101T000000")
    for n in range(3):
        writer = FeedbackWriter(tmp_path)
        writer.predictions(MODEL, [f"r{n}"], [1.0], np.zeros((1, 10), np.float32))
        writer.close()
        compact(tmp_path)
    assert read_feedback(tmp_path).served[0].ids == ("r0", "r1", "r2")


def test_a_folder_without_a_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no feedback log"):
        compact(tmp_path)


_KILLED = """
import os, signal, sys
from pathlib import Path
from calibrant.artifacts import feedback_compaction, feedback_parquet
from calibrant import atomic

at, count = int(sys.argv[2]), 0

def step(real):
    def counted(*arguments, **options):
        global count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    return counted

# Before and after everything that changes the folder.
os.replace = step(os.replace)
os.utime = step(os.utime)
os.fsync = step(os.fsync)
Path.unlink = step(Path.unlink)
feedback_parquet.write = step(feedback_parquet.write)
feedback_compaction.compact(Path(sys.argv[1]))
"""


@pytest.mark.slow  # 60 s
def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """kill -9 before each call that changes a file of the folder, of the first two segments."""
    twice = 0
    for step in range(1, 24):
        folder = tmp_path / str(step)
        _log(folder, blocks=14)
        before = read_feedback(folder)
        done = subprocess.run([sys.executable, "-c", _KILLED, str(folder), str(step)], check=False, timeout=120)
        assert done.returncode == -signal.SIGKILL
        names = [p.name for p in folder.iterdir()]
        twice += any(n.removesuffix(SUFFIX) + PARQUET in names for n in names if n.endswith(SUFFIX))
        _alike(read_feedback(folder), before)
        compact(folder)
        _alike(read_feedback(folder), before)
        assert {p.name.partition(".feedback")[2] for p in folder.iterdir()} == {".parquet"}
    assert twice >= 2  # a kill did come between a table's name and the end of its segment


def test_a_kill_at_any_moment(tmp_path: Path) -> None:
    """By the clock, from outside."""
    code = "import sys; from pathlib import Path; from calibrant.artifacts.feedback_compaction import compact; "
    code += "import pyarrow.parquet; print('go', flush=True); compact(Path(sys.argv[1]))"
    for tables in (1, 4, 9):
        folder = tmp_path / str(tables)
        _log(folder, blocks=150)
        before = read_feedback(folder)
        with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE) as process:
            while len(list(folder.glob(f"*{PARQUET}"))) < tables:
                assert process.poll() is None
                time.sleep(0.001)
            process.kill()
        assert list(folder.glob(f"*{SUFFIX}"))  # it was not done
        _alike(read_feedback(folder), before)
        compact(folder)
        _alike(read_feedback(folder), before)


def test_two_compactions_at_once_do_the_work_once(tmp_path: Path) -> None:
    _log(tmp_path, blocks=100)
    before = read_feedback(tmp_path)
    code = "import sys; from pathlib import Path; from calibrant.artifacts.feedback_compaction import compact; "
    code += "compact(Path(sys.argv[1]))"
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    _alike(read_feedback(tmp_path), before)
    assert not list(tmp_path.glob(f"*{SUFFIX}"))
