"""Broken inputs, all at once: each is named on a page, and every page goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .browser import Tab, new_tab, start_server
from .conftest import HOSTILE_FILE, write_feedback, write_model, write_run, write_tokens

pytestmark = pytest.mark.timeout(900)


def newer(path: Path) -> None:
    """The same JSON file, of a format from the future."""
    block = json.loads(path.read_text())
    path.write_text(json.dumps(block | {"format_version": 99}))


@pytest.fixture
def broken(tmp_path: Path, chromium: Any) -> Iterator[Tab]:
    root = tmp_path / "runs"
    write_run(root / "good", rows=300)
    half = write_run(root / "half-written", rows=300)
    test = half / "predictions" / "test.parquet"
    test.write_bytes(test.read_bytes()[:2000])
    (half / "config.json").write_text('{"kind": "run", "for')
    with open(half / "metrics.jsonl", "a") as stream:
        stream.write('{"epoch": 7, "val": {"acc')
    pq.write_table(pa.table({"x": [1, 2]}), root / "foreign.parquet")
    future = write_run(root / "future", rows=300)
    newer(future / "calibrator.json")
    newer(write_tokens(future, ("a", "b")))
    table = pq.read_table(future / "predictions" / "val.parquet")
    meta = {
        k: re.sub(rb'("format_version": ?)1', rb"\g<1>99", v) if k != b"format_version" else b"99"
        for k, v in (table.schema.metadata or {}).items()
    }
    pq.write_table(table.replace_schema_metadata(meta), future / "predictions" / "val.parquet")
    model = write_model(root / "good" / "model.onnx")
    write_feedback(root / "good" / "feedback", model, rows=200, every=2)
    segment = next((root / "good" / "feedback").iterdir())
    with open(segment, "ab") as log:
        log.write(b"not json\n{")
    (root / "cut.onnx").write_bytes(model.read_bytes()[:100])
    (root / f"{HOSTILE_FILE}.onnx").write_bytes(b"nothing")
    (root / "good" / "predictions" / "val.stats.npz").write_bytes(b"PK nothing")
    server = start_server(root)
    tab = new_tab(chromium, server)
    try:
        yield tab
    finally:
        tab.page.context.close()
        assert server.stop() == 0
        assert "Traceback" not in server.log


def test_every_broken_file_is_named_and_every_page_goes_on(broken: Tab) -> None:
    tab = broken
    tab.open("", wait_for="3 runs")
    fold = tab.page.get_by_text("more files could not be used")
    fold.click()
    tab.see("cut.onnx")
    text = tab.page.locator("[data-testid=stMain]").inner_text().replace("\u2060", "")
    for name in (
        "foreign.parquet", "half-written/predictions/test.parquet", "half-written/config.json", "cut.onnx",
        "future/calibrator.json", "future/tokens/tokens.json", "future/predictions/val.parquet", f"{HOSTILE_FILE}.onnx",
    ):  # fmt: skip
        assert name in text, name
    assert text.count("newer") >= 3
    assert tab.page.locator("[data-testid=stMain] img").count() == 0
    for page, sign in (
        ("reliability?run=half-written", "ECE"),
        ("reliability?run=good&predictions=val", "ECE after"),
        ("reliability?run=future&predictions=test", "ECE"),
        ("training", "Accuracy and calibration by epoch"),
        ("try", "Deployed file"),
        ("production", "damaged"),
        ("laboratory", "No cached features"),
    ):
        tab.open(page, wait_for=sign)
        tab.check()
