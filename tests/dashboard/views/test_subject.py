"""The choice of what a page is about."""

from __future__ import annotations

from pathlib import Path

from .conftest import Page


def test_runs_and_deployed_files_can_be_chosen_on_both_pages(page: Page, folder: Path) -> None:
    for view in ("reliability", "decide"):
        box = page(view, folder).selectbox(key="run")
        assert box.options == ["fedlas", "leaves", "leaves/model.onnx"]


def test_a_deployed_file_is_judged_by_the_predictions_of_its_weights(page: Page, folder: Path) -> None:
    drawn = page("decide", folder, run="leaves/model.onnx")
    assert drawn.selectbox(key="predictions").options == ["test", "val"]
    assert drawn.text_input(key="as-deployed-leaves/model.onnx").value == "as the file answers"


def test_a_deployed_file_comes_first_where_no_address_says_another(page: Page, folder: Path) -> None:
    for view in ("reliability", "decide"):
        assert page(view, folder).selectbox(key="run").value == "leaves/model.onnx"
        assert page(view, folder, run="fedlas").selectbox(key="run").value == "fedlas"
