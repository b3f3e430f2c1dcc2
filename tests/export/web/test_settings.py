"""What the page is told of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrant.artifacts.model_card import InputSpec, ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.export.web.settings import page_settings, prediction_sets
from calibrant.images.preprocessing import Preprocessing

from ..conftest import CLASSES, PREPROCESSING

SETS = {"0.1": {"kind": "lac", "threshold": 0.9}, "0.05": {"kind": "lac", "threshold": None}}


def test_what_decides_an_answer_is_there(variant: Any) -> None:
    fitted = Calibrator("temperature", len(CLASSES), {"temperature": 1.3})
    path, _ = variant(calibrator=fitted, abstain_below=0.4, conformal=SETS, ood={"kind": "energy", "threshold": -2.5})
    file = OnnxFile.open(path)
    found = page_settings(file, file.card(), version="v", name="Trees")
    assert found["classes"] == list(CLASSES)
    assert found["preprocessing"] == PREPROCESSING.to_dict()
    assert found["input"] == {"name": "images", "dtype": "uint8", "layout": "NHWC", "rows": 1}
    assert (found["abstain_below"], found["ood_threshold"], found["calibrator"]) == (0.4, -2.5, "temperature")
    assert [(s["coverage"], s["threshold"]) for s in found["sets"]] == [(0.95, None), (0.9, 0.9)]


def test_a_score_that_the_graph_does_not_put_out_has_no_limit(variant: Any) -> None:
    path, _ = variant(ood={"kind": "energy", "threshold": -2.5}, outputs=("probabilities", "logits"))
    file = OnnxFile.open(path)
    assert page_settings(file, file.card(), version="v", name="n")["ood_threshold"] is None


@pytest.mark.parametrize(("dims", "rows"), [(("N", 3, 8, 8), 1), ((4, 3, 8, 8), 4)])
def test_a_fixed_batch_is_told(deployed: Path, dims: tuple[Any, ...], rows: int) -> None:
    file = OnnxFile.open(deployed)
    file = replace(file, inputs=(replace(file.inputs[0], dims=dims),))
    card = replace(file.card(), input=InputSpec("images", "float32", "NCHW"))
    assert page_settings(file, card, version="v", name="n")["input"]["rows"] == rows


def test_independent_labels_and_sets_of_another_prior_give_none() -> None:
    card = ModelCard(("a", "b"), Preprocessing((8, 8), 8), conformal=SETS)
    assert len(prediction_sets(card)) == 2
    assert prediction_sets(replace(card, outcome="independent")) == []
    assert prediction_sets(replace(card, conformal=None)) == []
