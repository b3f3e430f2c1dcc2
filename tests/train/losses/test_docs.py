from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOC = Path(__file__).resolve().parents[3] / "docs" / "losses.md"


@pytest.mark.skipif(not DOC.is_file(), reason="the wheel has no docs")
def test_examples_of_the_page_run_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), names)
    assert "corrected 2 times" in str(names["caught"][0].message)
    assert names["probabilities"].sum(1).allclose(names["probabilities"].new_ones(64))


@pytest.mark.skipif(not DOC.is_file(), reason="the wheel has no docs")
def test_every_loss_is_on_the_page() -> None:
    from calibrant.train.losses import LOSSES

    text = DOC.read_text(encoding="utf-8")
    assert [name for name in LOSSES if f"`{name}`" not in text] == []
