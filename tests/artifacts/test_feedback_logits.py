"""What stays of the logits in a feedback log, and what may be made of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.feedback import Model, read_feedback, segments
from calibrant.artifacts.feedback_logits import CUT, Kept, decode, refuse_cut
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.softmax import log_softmax
from calibrant.commands.root import cli
from calibrant.errors import DataError

WAYS = [Kept(), Kept(half=True), Kept(top=5), Kept(half=True, top=5), Kept(top=40)]


def _logits(rows: int = 300, classes: int = 40) -> np.ndarray:
    return np.random.default_rng(3).normal(scale=3.0, size=(rows, classes)).astype(np.float32)


@pytest.mark.parametrize("kept", WAYS)
def test_who_counts_before_the_log_sees_what_a_reader_of_it_sees(kept: Kept) -> None:
    logits = _logits()
    record = {"ids": [""] * len(logits), **kept.encode(logits)}
    np.testing.assert_array_equal(decode(json.loads(json.dumps(record)), 40), kept.seen(logits))


def test_a_row_by_hand() -> None:
    row = np.log(np.float32([[1, 20, 3, 30, 4, 15, 25]]))
    seen = np.exp(Kept(top=5).seen(row))
    np.testing.assert_allclose(seen, [[2, 20, 2, 30, 4, 15, 25]], rtol=1e-6)  # 1 and 3 share their sum


def test_the_kept_classes_have_their_probabilities_and_the_others_their_sum() -> None:
    logits = _logits()
    p, q = (np.exp(log_softmax(z.astype(np.float64))) for z in (logits, Kept(top=6).seen(logits)))
    top = np.argsort(-logits, axis=1)[:, :6]
    np.testing.assert_allclose(np.take_along_axis(q, top, 1), np.take_along_axis(p, top, 1), rtol=1e-5)
    np.testing.assert_allclose(q.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(q.argmax(axis=1), p.argmax(axis=1))
    others = np.argsort(-logits, axis=1)[:, 6:]
    assert (np.ptp(np.take_along_axis(q, others, 1), axis=1) == 0).all()


def test_classes_that_are_ruled_out_stay_so() -> None:
    row = np.full((2, 8), -np.inf, np.float32)
    row[:, 2] = 3.0
    row[1] = [0, 1, 2, 3, 4, 5, -np.inf, -np.inf]
    seen = Kept(top=6).seen(row)
    np.testing.assert_array_equal(seen, row)


def test_rows_of_more_than_65536_classes_find_theirs() -> None:
    logits = np.zeros((1, 70_000), np.float32)
    logits[0, [1, 4_464, 70_000 - 1, 65_536, 9]] = [9, 8, 7, 6, 5]
    record = {"ids": ["x"], **Kept(top=5).encode(logits)}
    np.testing.assert_array_equal(decode(record, 70_000)[0, [1, 4_464, 69_999, 65_536, 9]], [9, 8, 7, 6, 5])


def _log(folder: Path, kept: Kept | None, classes: int = 40) -> np.ndarray:
    logits = _logits(400, classes)
    names = tuple(f"class {k}" for k in range(classes))
    labels = (logits / 2 + np.random.default_rng(4).gumbel(size=logits.shape)).argmax(axis=1)  # over-confident
    with_ids = [f"r{i}" for i in range(400)]
    writer = FeedbackWriter(folder, kept=kept)
    writer.predictions(Model("birds", "1", "ab", names), with_ids, np.arange(400.0).tolist(), logits)
    writer.labels("birds", with_ids, labels.tolist())
    writer.close()
    return logits


def test_a_cut_log_is_of_format_3_and_says_so_when_read(tmp_path: Path) -> None:
    for k in (None, 5, 60):
        _log(tmp_path / str(k), Kept(top=k))
    first = [segments(tmp_path / str(k))[0].read_text().split("\n")[0] for k in (None, 5)]
    assert [json.loads(line)["format_version"] for line in first] == [1, 3]
    assert [read_feedback(tmp_path / str(k)).served[0].cut for k in (None, 5, 60)] == [None, 5, None]
    file = PredictionsFile.open(tmp_path / "5")
    assert file.source.model[CUT] == 5
    labels = file.read().labels
    among = (np.argsort(-_logits(400), axis=1)[:, :5] == labels[:, None]).any(axis=1).mean()
    assert f"NLL for the {100 * among:.1f} % of labels" in file.notes[0]
    assert CUT not in PredictionsFile.open(tmp_path / "None").source.model


def test_evaluate_says_the_same_of_accuracy_and_ece(tmp_path: Path) -> None:
    found = {}
    for k in (None, 5):
        _log(tmp_path / str(k), Kept(top=k))
        result = CliRunner().invoke(cli, ["evaluate", str(tmp_path / str(k)), "--json"])
        assert result.exit_code == 0, result.output
        (found[k],) = json.loads(result.stdout)["models"]
    for name in ("accuracy", "ece"):
        assert found[5]["metrics"][name]["value"] == pytest.approx(found[None]["metrics"][name]["value"], abs=1e-6)
    assert any("5 largest of 40 logits" in note for note in found[5]["notes"])
    commands = {k: str([r["command"] for r in found[k]["verdict"]["remedies"]]) for k in found}
    assert "calibrant calibrate" in commands[None]
    assert "calibrant calibrate" not in commands[5]  # which would be refused


@pytest.mark.parametrize(
    "command",
    [
        ["calibrate", "{log}"], ["evaluate", "{log}", "--adjust", "1"], ["evaluate", "{log}", "--calibrator", "c.json"],
        ["calibrate", "{whole}", "--target-prior", "estimate:{log}", "--adjust", "1"],
        ["calibrate", "{whole}", "--also-on", "{log}", "--out", "{whole}.json"],
    ],
)  # fmt: skip
def test_what_needs_all_classes_is_refused_in_words(command: list[str], tmp_path: Path) -> None:
    _log(tmp_path / "cut", Kept(top=5))
    _log(tmp_path / "whole", None)
    arguments = [c.format(log=tmp_path / "cut", whole=tmp_path / "whole") for c in command]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, DataError) or "kept the 5 largest" in result.output
    assert "kept the 5 largest" in (result.output + str(result.exception))


def test_a_log_that_kept_all_is_refused_nothing() -> None:
    refuse_cut({}, None, "anything")
    with pytest.raises(DataError, match="this needs all classes of a row, and this log kept the 7 largest"):
        refuse_cut({CUT: 7}, None, "this")
