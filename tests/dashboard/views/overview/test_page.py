"""The overview: a line for each run and file, and what it says where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions

from ..conftest import Page, frame, words


def test_each_run_has_a_line_with_its_accuracy(page: Page, folder: Path) -> None:
    lines = frame(page("overview", folder), "ECE before (%)").set_index("Run")
    for name in ("leaves", "fedlas"):
        data = read_predictions(folder / name / "predictions/test.parquet")
        assert lines.loc[name, "Accuracy (%)"] == pytest.approx(100 * np.mean(data.logits.argmax(1) == data.labels))
        assert lines.loc[name, "Rows"] == len(data)
        assert lines.loc[name, "Epochs"] == 6
    assert np.isnan(lines.loc["fedlas", "ECE after (%)"])  # it has no calibrator
    assert lines.loc["leaves", "T"] > 1


def test_a_deployed_file_is_measured_on_the_rows_of_its_own_weights(page: Page, folder: Path) -> None:
    line = frame(page("overview", folder), "Prior adjustment").iloc[0]
    assert (line["File"], line["Predictions"], line["T"], line["Prior adjustment"]) == (
        "leaves/model.onnx",
        "leaves/test",
        2.0,
        1.0,
    )


def test_an_empty_folder_offers_the_demo(page: Page, tmp_path: Path) -> None:
    drawn = page("overview", tmp_path)
    assert "There are no runs below" in words(drawn)
    assert [b.key for b in drawn.button] == ["make-demo", "again"]


def test_a_damaged_file_is_named_and_the_others_are_shown(page: Page, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "fedlas", tmp_path / "fedlas")
    (tmp_path / "fedlas/predictions/val.parquet").write_bytes(b"PAR1 no more")
    drawn = page("overview", tmp_path)
    assert "val.parquet" in "\n".join([words(drawn), *(w.value for w in drawn.warning)]).replace("\\", "")
    assert frame(drawn, "Accuracy (%)")["Run"].tolist() == ["fedlas"]
