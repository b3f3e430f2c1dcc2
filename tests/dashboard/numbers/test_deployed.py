"""Deployed files on the predictions of their own weights: the one formula, worked out beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration import metrics
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import deployed, measures
from calibrant.dashboard.numbers.predictions_through import Scored

from ..conftest import write_model, write_run


def test_a_file_is_measured_as_it_would_have_answered_its_own_held_out_rows(tmp_path: Path) -> None:
    write_run(tmp_path / "other", rows=200, seed=5)
    run = write_run(tmp_path / "mine", rows=2500, seed=4)
    write_model(tmp_path / "file.onnx", source={"checkpoint_sha256": "weights of mine"})
    folder_index = scan(tmp_path)
    (model,) = folder_index.models
    found = deployed.held_out(folder_index, model)
    assert found is not None
    assert (found[0].name, found[1].name) == ("mine", "test")
    summary = measures.summary(Scored.of(found[1]), Scored.of(found[1], model))
    data = read_predictions(run / "predictions" / "test.parquet")
    pi = np.asarray(model.card.prior.train)
    network = np.exp(data.logits.astype(np.float64))
    answers = np.exp(data.logits.astype(np.float64) / 2.0) / pi  # T = 2, full adjustment to a uniform prior
    network, answers = (p / p.sum(axis=1, keepdims=True) for p in (network, answers))
    assert summary.rows == 2500
    assert summary.accuracy.value == pytest.approx(metrics.accuracy(answers, data.labels), abs=1e-12)
    assert summary.accuracy.value != pytest.approx(metrics.accuracy(network, data.labels), abs=1e-6)
    assert summary.nll == pytest.approx(metrics.nll(network, data.labels), rel=1e-9)
    assert summary.nll_after == pytest.approx(metrics.nll(answers, data.labels), rel=1e-9)
    assert summary.ece.value == pytest.approx(metrics.ece(network, data.labels), abs=1e-9)
    assert summary.ece_after is not None
    assert summary.ece_after.value == pytest.approx(metrics.ece(answers, data.labels), abs=1e-9)


@pytest.mark.parametrize("source", [{}, {"checkpoint_sha256": "weights of nobody"}])
def test_a_file_of_other_weights_is_not_measured_on_them(tmp_path: Path, source: dict[str, str]) -> None:
    write_run(tmp_path / "mine", rows=50)
    write_model(tmp_path / "file.onnx", source=source)
    folder_index = scan(tmp_path)
    assert deployed.held_out(folder_index, folder_index.models[0]) is None
