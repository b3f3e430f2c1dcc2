"""The writers in docs/predictions.md write what is read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import is_own, read_predictions

PAGE = Path(__file__).resolve().parents[3] / "docs" / "predictions.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["pandas", "polars", "pyarrow"])
def test_a_writer_of_at_most_ten_lines_is_read(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("pandas", "polars"):
        if f"import {library}" in block:
            pytest.importorskip(library)
    lines = [line for line in block.splitlines() if line and not line.startswith("import ")]
    assert len(lines) <= 10
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/predictions.md", "exec"), {})
    (written,) = tmp_path.glob("*.parquet")
    found = read_predictions(written)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(found.logits, rng.normal(size=(100, 3)).astype("float32"))
    np.testing.assert_array_equal(found.labels, rng.integers(0, 3, 100))
    if "pyarrow.parquet" in block:
        assert is_own(written)
        assert found.class_names == ("ash", "elm", "oak")
