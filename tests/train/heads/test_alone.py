"""A head without its backbone: the same logits from rows of features, in torch and as one ONNX file."""

from __future__ import annotations

import json
import urllib.request
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


@pytest.mark.slow  # one trace by torch.export, 10 s
@pytest.mark.filterwarnings("ignore")
def test_the_file_is_edited_verified_and_served(table: Path) -> None:
    """What `calibrant quantize` cannot do is said; all else is as with any deployed file."""
    from click.testing import CliRunner

    from calibrant.commands.root import cli
    from calibrant.serve import load
    from calibrant.serve.processes.background import running

    def command(*arguments: object) -> str:
        done = CliRunner().invoke(cli, list(map(str, arguments)))
        return done.output if done.exit_code == 0 else f"refused: {done.exception}"

    trained(table, KINDS["linear"])
    out, run = table.parent / "head.onnx", table.parent / "run"
    command("export", run, "--head-only", "--out", out)
    rows = FeatureCache.open(table).read("test").features
    before = load(out).outputs(rows)["probabilities"].astype(np.float64)
    classes = before.shape[1]
    trained_on = ",".join([f"{1 / classes:.12f}"] * classes)
    wanted = np.arange(1.0, classes + 1) / np.arange(1, classes + 1).sum()
    target = ",".join(f"{p:.12f}" for p in wanted)
    assert "refused" not in command(
        "adjust", out, "--strength", 1, "--train-prior", trained_on, "--target-prior", target
    )
    assert "refused" not in command("set-threshold", out, 0.6)
    assert "agrees with torch" in command("verify", out)  # the run lies beside it, without a backbone
    assert "only networks of pictures" in command("quantize", out, "--data", table, "--out", table.parent / "q.onnx")
    by_hand = before * wanted  # Bayes' rule from a uniform prior
    by_hand /= by_hand.sum(axis=1, keepdims=True)
    tensor = {"name": "rows", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    with running(out, arguments=["--threads", "1"]) as server:
        request = urllib.request.Request(f"{server}/v2/models/run/infer", json.dumps({"inputs": [tensor]}).encode())
        answer = json.loads(urllib.request.urlopen(request, timeout=60).read())
    found = next(o for o in answer["outputs"] if o["name"] == "probabilities")
    np.testing.assert_allclose(np.reshape(found["data"], found["shape"]), by_hand, atol=1e-5)
    assert load(out).card.abstain_below == 0.6


def test_a_run_without_a_head_says_so(tmp_path: Path) -> None:
    from calibrant.export.run import head_of

    with pytest.raises(ModelError, match="name a run of calibrant head"):
        head_of(tmp_path)
