"""A head without its backbone: the same logits from rows of features, in torch and as one ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration import Calibrator
from calibrant.errors import ConfigError, ModelError
from calibrant.train.heads.alone import HEAD_MODEL
from calibrant.train.heads.config import head_config
from calibrant.train.heads.experiment import run_experiment
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.matrices import Matrices
from calibrant.train.heads.run import write_run
from calibrant.train.run.folder import load_run

from .conftest import toy_rows

BASE = ["optimizer.epochs=5", "posthoc.temperature=global"]
KINDS = {
    "linear": ["input.transform=standardise"],
    "lda on roots": ["head.kind=lda", "input.power=0.5"],
    "cosine": ["head.kind=cosine", "input.transform=center"],
    "mlp": ["head.kind=mlp", "head.hidden=[8]", "input.transform=standardise"],
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x, y = toy_rows((60, 50, 40, 30, 30, 30), seed=4)
    np.savez(tmp_path / "table.npz", features=x, labels=y)
    return tmp_path / "table.npz"


def trained(table: Path, settings: list[str]) -> tuple[Path, FeatureCache]:
    cache = FeatureCache.open(table)
    run = table.parent / "run"
    done = write_run(run, cache, run_experiment(Matrices(cache), head_config({}, [*BASE, *settings])))
    assert "--head-only" in (done.export_command or "")
    return run, cache


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_of_a_table_is_kept_and_says_the_same(kind: str, table: Path) -> None:
    run, cache = trained(table, KINDS[kind])
    model = load_run(run / HEAD_MODEL)
    expected = read_predictions(run / "predictions" / "test.parquet")
    rows = cache.read("test")
    assert rows.ids == expected.ids
    with torch.no_grad():
        logits, _ = model.network(torch.from_numpy(rows.features))
    np.testing.assert_allclose(model.adjust(logits).numpy(), expected.logits, rtol=1e-4, atol=1e-4)
    assert expected.source.model["sha256"] == model.sha256


@pytest.mark.slow  # two traces by torch.export, 10 s each
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["lda on roots", "mlp"])
def test_the_file_takes_rows_and_holds_the_formula(kind: str, table: Path) -> None:
    from calibrant.export.checks.verify import verify_file
    from calibrant.export.config import ExportConfig
    from calibrant.export.run import export_run
    from calibrant.serve import load

    run, cache = trained(table, KINDS[kind])
    out, file = table.parent / "head.onnx", run / "calibrator.json"
    card = export_run(run, out, ExportConfig(head_only=True, calibrator=file))
    assert (card.input.name, card.input.layout) == ("rows", "NF")
    test = read_predictions(run / "predictions" / "test.parquet")
    rows = cache.read("test").features
    served = load(out).outputs(rows)["probabilities"]
    np.testing.assert_allclose(served, Calibrator.load(file).probabilities(test.logits), atol=2e-6)
    report, _ = verify_file(out, run, None)
    assert report["passed"]
    with pytest.raises(ConfigError, match="takes rows of features"):
        export_run(run, out, ExportConfig(head_only=True, images=table.parent))


def test_a_run_without_a_head_says_so(tmp_path: Path) -> None:
    from calibrant.export.run import head_of

    with pytest.raises(ModelError, match="name a run of calibrant head"):
        head_of(tmp_path)
