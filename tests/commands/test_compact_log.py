"""`calibrant compact-log`, while a server answers, takes labels and is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_records import PARQUET, SUFFIX
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.commands.compact_log import compact_log
from calibrant.errors import DataError
from calibrant.serve.processes.background import running

FILE = Path(__file__).resolve().parents[1] / "golden" / "v1" / "deployed" / "baked.onnx"
PICTURE = FILE.parents[1] / "images/test/ash/00.png"


def test_what_was_done_is_said(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    rng = np.random.default_rng(0)
    writer.predictions(
        Model("m", "1", "ab", ("a", "b")), ["x"] * 500, [1.0] * 500, np.float32(rng.normal(size=(500, 2)))
    )
    said = CliRunner().invoke(compact_log, [str(tmp_path)]).stdout
    assert "Nothing to do" in said
    assert "1 part(s) may still be written to" in said
    writer.close()
    assert "1 part(s) to Parquet: 0.0 MiB" in CliRunner().invoke(compact_log, [str(tmp_path)]).stdout
    found = json.loads(CliRunner().invoke(compact_log, [str(tmp_path), "--json"]).stdout)
    assert found == {"segments": 0, "bytes_before": 0, "bytes_after": 0, "still_open": 0, "kept": 0}
    with pytest.raises(DataError, match="holds no feedback log"):
        CliRunner().invoke(compact_log, [str(tmp_path / "nothing")], catch_exceptions=False)


@pytest.mark.slow  # 20 s
def test_labels_find_answers_that_were_compacted_before_and_after_a_kill(tmp_path: Path) -> None:
    log, content = tmp_path / "log", PICTURE.read_bytes()
    ids: list[str] = []
    for start in range(2):
        with running(f"baked={FILE}", arguments=["--feedback-log", str(log), "--threads", "1"]) as server:
            address = f"{server.url}/v2/models/baked"
            for _ in range(3):
                answer = httpx.post(f"{server.url}/predict", content=content, timeout=60)
                ids.append(answer.json()["id"])
            httpx.get(f"{address}/monitor", timeout=60)  # by which they are in the log
            if start:
                CliRunner().invoke(compact_log, [str(log)], catch_exceptions=False)
                assert [len(list(log.glob(f"*{s}"))) for s in (PARQUET, SUFFIX)] == [1, 1]
            body = {"labels": [{"id": id_, "label": 0} for id_ in (ids[1], ids[-2])]}
            found = httpx.post(f"{address}/feedback", json=body, timeout=60).json()
            assert "unknown" not in found or not found["unknown"]
            os.kill(server.pid, signal.SIGKILL)
    CliRunner().invoke(compact_log, [str(log)], catch_exceptions=False)
    assert not list(log.glob(f"*{SUFFIX}"))
    (served,) = read_feedback(log).served
    assert served.ids == tuple(ids)
    assert served.labels.tolist() == [-1, 0, -1, -1, 0, -1]
