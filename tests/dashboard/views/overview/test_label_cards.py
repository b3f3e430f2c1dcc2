"""Cards of independent labels on the Overview."""

from __future__ import annotations

from pathlib import Path

from ...labelled import write_labels
from ..conftest import Page, words


def test_the_overview_has_a_card_that_opens_it(page: Page, tmp_path: Path) -> None:
    write_labels(tmp_path / "many")
    drawn = page("overview", tmp_path)
    assert "Independent labels" in [s.value for s in drawn.subheader]
    assert "4 labels · 600 multi.npz rows" in words(drawn).replace("\\", "")
    assert "labels have probabilities that can be trusted" in words(drawn)
    assert drawn.button(key="open-labels-many|multi.npz").label == "Open"
    assert not drawn.warning
