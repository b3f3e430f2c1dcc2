"""Files that an older version wrote are read today, and give the numbers that the older version gave.

tests/golden/v1 holds the files and numbers.json, which was recorded with the code that wrote them (see its README).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.feedback import read_feedback
from calibrant.artifacts.predictions import PredictionsFile, read_predictions
from calibrant.calibration import Calibrator, evaluate
from calibrant.calibration.statistics.statistics import Statistics, for_file
from calibrant.dashboard.folder.index import scan
from calibrant.serve import load

V1 = Path(__file__).resolve().parent / "golden" / "v1"
RECORDED: dict[str, Any] = json.loads((V1 / "numbers.json").read_text()) if (V1 / "numbers.json").is_file() else {}

PREDICTIONS = sorted(str(p.relative_to(V1)) for p in [*V1.rglob("predictions/*.parquet"), *V1.glob("*.parquet")])
CALIBRATORS = sorted(p.stem for p in (V1 / "calibrators").glob("*.json"))
DEPLOYED = sorted(p.stem for p in (V1 / "deployed").glob("*.onnx"))
# What a request may say of each file: by file, the knobs of the recorded answers.
KNOBS: dict[str, list[dict[str, Any]]] = {
    "baked": [{}, {"temperature": 2.0}, {"adjust_strength": 0.0}, {"ood": True, "top_k": 2}],
    "runtime": [{}, {"temperature": 0.5, "adjust_strength": 1.5}, {"target_prior": [0.5, 0.25, 0.25]}],
    "isotonic": [{}, {"coverage": 0.9}],
    "sets": [{}, {"coverage": 0.8}],
    "head": [{}, {"target_prior": "uniform"}],
    "int8": [{}],
}


def pictures(split: str) -> list[np.ndarray]:
    return [np.asarray(Image.open(p).convert("RGB")) for p in sorted((V1 / "images" / split).rglob("*.png"))]


def rounded(values: Any) -> Any:
    return np.round(np.asarray(values, np.float64), 9).tolist()


def of_predictions(name: str) -> dict[str, Any]:
    file = PredictionsFile.open(V1 / name)
    data, source = read_predictions(V1 / name, features=True), file.source
    return {
        "rows": len(data), "ids": [data.ids[0], data.ids[-1]], "labels": data.labels.tolist(),
        "logits": rounded(data.logits), "features": None if data.features is None else rounded(data.features.sum(1)),
        "classes": list(source.class_names), "prior": source.train_prior, "absorbed": source.absorbed,
        "taus": source.class_temperatures, "model": dict(source.model), "sha256": file.sha256(),
    }  # fmt: skip


def of_calibrator(name: str) -> dict[str, Any]:
    calibrator = Calibrator.load(V1 / "calibrators" / f"{name}.json")
    logits = read_predictions(V1 / "rows.parquet").logits[:6]
    return {
        "method": calibrator.method, "logits": rounded(calibrator.logits(logits)),
        "conformal": calibrator.conformal, "abstain": calibrator.abstain,
        "strength": calibrator.fitted_on.get("strength"), "ratio": calibrator.fitted_on.get("log_prior_ratio"),
        "ece_after": calibrator.metrics["after"]["ece"]["value"],
    }  # fmt: skip


def of_deployed(name: str) -> dict[str, Any]:
    classifier = load(V1 / "deployed" / f"{name}.onnx", threads=1)
    card, answers = classifier.card, []
    for knobs in KNOBS[name]:
        r = classifier.predict(pictures("test"), **knobs)
        answers.append({
            "probabilities": rounded(r.probabilities), "labels": r.labels.tolist(), "abstained": r.abstained.tolist(),
            "top": r.top.tolist(), "ood": None if r.ood_score is None else rounded(r.ood_score),
            "sets": None if r.prediction_sets is None else r.prediction_sets.tolist(),
        })  # fmt: skip
    return {
        "classes": list(card.classes), "taus": card.class_temperatures, "knobs": card.knobs, "total": card.prior.total,
        "target": card.prior.target, "abstain_below": card.abstain_below, "answers": answers,
    }  # fmt: skip


def of_log() -> dict[str, Any]:
    feedback = read_feedback(V1 / "log")
    (served,) = feedback.served
    return {
        "model": [served.model.name, served.model.version, served.model.sha256, list(served.model.classes)],
        "ids": list(served.ids), "times": served.times.tolist(), "labels": served.labels.tolist(),
        "logits": rounded(served.logits), "ms": [None if np.isnan(v) else float(v) for v in served.latency_ms],
        "damaged": feedback.damaged_lines, "repeated": feedback.repeated_ids,
        "orphans": list(feedback.labels_without_prediction),
    }  # fmt: skip


def of_statistics(statistics: Statistics) -> dict[str, Any]:
    found = evaluate(statistics).metrics
    keys = ("accuracy", "nll", "brier", "ece", "classwise_ece", "mce")
    return {k: float(found[k].value) for k in keys if k in found}


def of_index(root: Path) -> dict[str, Any]:
    folder_index = scan(root)
    return {
        "runs": [run.name for run in folder_index.runs], "models": [m.name for m in folder_index.models],
        "calibrators": [c.name for c in folder_index.calibrators], "logs": [f.name for f in folder_index.feedback],
        "features": [f.name for f in folder_index.features], "troubles": [t.where for t in folder_index.troubles],
    }  # fmt: skip


def of_run(name: str) -> dict[str, Any]:
    import torch

    from calibrant.train.run.folder import load_run

    trained = load_run(V1 / name)
    size = trained.preprocessing.size
    pixels = torch.linspace(-1, 1, 2 * 3 * size[0] * size[1]).reshape(2, 3, *size)
    with torch.no_grad():
        logits = trained.adjust(trained.network(pixels)[0])
    taus = trained.class_temperatures
    return {
        "model": trained.model_name, "classes": list(trained.class_names), "logits": rounded(logits.numpy()),
        "taus": None if taus is None else rounded(taus), "gauge": trained.gauge, "prior": rounded(trained.train_prior),
        "absorbed": trained.absorbed, "preprocessing": trained.preprocessing.to_dict(),
    }  # fmt: skip


def of_features() -> dict[str, Any]:
    from calibrant.train.heads.features.cache import FeatureCache

    cache = FeatureCache.open(V1 / "features")
    out: dict[str, Any] = {"classes": list(cache.class_names), "splits": sorted(cache.splits())}
    for split in sorted(cache.splits()):
        for view in ("eval", "flip"):
            rows = cache.read(split, view)
            out[f"{split}-{view}"] = [list(rows.ids)[:2], rows.labels.tolist(), rounded(rows.features.sum(1))]
    return out


def of_checkpoint() -> dict[str, Any]:
    from calibrant.train.run.checkpoint import load_checkpoint

    state = load_checkpoint(V1 / "run" / "checkpoint.safetensors")
    return {"keys": sorted(state), "tensors": _sums(state)}


def _sums(value: Any) -> list[float]:
    """Of every tensor inside, in order of their names."""
    if isinstance(value, dict):
        return [s for _, v in sorted(value.items(), key=lambda item: str(item[0])) for s in _sums(v)]
    if isinstance(value, list):
        return [s for v in value for s in _sums(v)]
    return [round(float(value.double().sum()), 6)] if hasattr(value, "double") else []


def same(found: Any, recorded: Any, *, atol: float = 1e-6) -> None:
    """Equal but for rounding; the JSON made tuples lists."""
    if isinstance(recorded, dict):
        assert set(found) == set(recorded)
        for key in recorded:
            same(found[key], recorded[key], atol=atol)
    elif isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            same(one, other, atol=atol)
    elif isinstance(recorded, float) and not isinstance(found, str | None):
        assert found == pytest.approx(recorded, rel=1e-5, abs=atol)
    else:
        assert found == recorded


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_are_read(name: str) -> None:
    same(of_predictions(name), RECORDED["predictions"][name])


def test_logits_of_others_in_an_npz_are_read() -> None:
    data = read_predictions(V1 / "foreign.npz")
    same([rounded(data.logits), data.labels.tolist(), list(data.class_names)], RECORDED["npz"])


@pytest.mark.parametrize("name", CALIBRATORS)
def test_calibrators_map_logits_as_they_did(name: str) -> None:
    same(of_calibrator(name), RECORDED["calibrators"][name])


@pytest.mark.parametrize("name", DEPLOYED)
def test_deployed_files_answer_as_they_did(name: str) -> None:
    same(of_deployed(name), RECORDED["deployed"][name], atol=2e-5)  # float32 of another CPU; int8 is exact there too


def test_a_feedback_log_is_joined_as_it_was() -> None:
    same(of_log(), RECORDED["log"])


def test_statistics_kept_beside_predictions_are_made_again_where_they_lack_what_intervals_need(
    tmp_path: Path,
) -> None:
    """A cache, not a record: format 1 keeps no sample of the probabilities. The numbers are those of the same rows."""
    for name in ("rows.parquet", "rows.stats.npz"):
        shutil.copy(V1 / name, tmp_path / name)
    before = (tmp_path / "rows.stats.npz").read_bytes()
    found = for_file(tmp_path / "rows.parquet")
    assert (tmp_path / "rows.stats.npz").read_bytes() != before
    same(of_statistics(found), RECORDED["statistics"]["metrics"])
    again = (tmp_path / "rows.stats.npz").read_bytes()
    for_file(tmp_path / "rows.parquet")
    assert (tmp_path / "rows.stats.npz").read_bytes() == again


def test_the_dashboard_finds_every_artifact() -> None:
    same(of_index(V1), RECORDED["shelf"])


@pytest.mark.parametrize("name", ["run", "plain", "head"])
def test_runs_are_loaded(name: str) -> None:
    pytest.importorskip("timm")
    same(of_run(name), RECORDED["runs"][name], atol=1e-5)


def test_a_feature_cache_is_read() -> None:
    pytest.importorskip("torch")
    same(of_features(), RECORDED["features"])


def test_a_checkpoint_is_read() -> None:
    pytest.importorskip("torch")
    same(of_checkpoint(), RECORDED["checkpoint"])
