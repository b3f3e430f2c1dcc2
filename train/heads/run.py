"""The run folder of a head: what predict, calibrate, evaluate and export read, as of any other run.

config.json, model.safetensors (backbone and head), predictions/*.parquet as of `calibrant train`; besides
head.safetensors (the head alone, for `export --head-only`), head.json (metrics, corrections, the command that exports
it) and calibrator.json (temperature or shifts, where fitted).
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import plugins
from calibrant._version import __version__
from calibrant.artifacts.model_card import Prior, rows_preprocessing
from calibrant.artifacts.predictions import FOLD, OUT_OF_FOLD, Predictions, PredictionsFile, Source
from calibrant.atomic import write_json, write_text
from calibrant.calibration import Calibrator
from calibrant.calibration.fitting import rows_sha256
from calibrant.calibration.formula import with_prior
from calibrant.config import to_table
from calibrant.shares import shares
from calibrant.train.heads.alone import HEAD_MODEL, alone
from calibrant.train.heads.experiment import HeadResult
from calibrant.train.heads.features.backbone import cached_backbone
from calibrant.train.heads.features.cache import FeatureCache, FeatureRows
from calibrant.train.heads.features.views import IN_GRAPH
from calibrant.train.heads.fused import fuse
from calibrant.train.run.folder import CONFIG_FILE, FORMAT_VERSION, MODEL_FILE, save_model, sha256_of

HEAD_FILE, CALIBRATOR_FILE = "head.json", "calibrator.json"


@dataclass(frozen=True)
class HeadRun:
    path: Path
    export_command: str | None  # None: the test views cannot be made in one graph


def write_run(path: Path, cache: FeatureCache, result: HeadResult, *, data: Path | None = None) -> HeadRun:
    """Everything about one trained head."""
    config, trained, posthoc = result.config, result.trained, result.posthoc
    m = cache.manifest
    names = cache.class_names
    prior = tuple(float(v) for v in result.prior / result.prior.sum())
    taus = trained.class_temperatures()
    table = to_table(config)
    table["data"]["path"] = None if data is None else str(data)
    write_json(
        path / CONFIG_FILE,
        {
            "kind": "run", "format_version": FORMAT_VERSION, "task": "head", "config": table,
            "features": {"path": str(cache.path.resolve()), "model": dict(m.model)},
            "made_with": {**m.made_with, "calibrant": __version__},
            "plugins": [p.to_dict() for p in plugins.loaded()],
        },
    )  # fmt: skip
    deployable = cache.has_backbone and all(view in IN_GRAPH for view in config.data.test_views)
    sha = None
    described = {
        "class_names": list(names),
        "class_temperatures": None if taus is None else [float(v) for v in taus],
        "gauge": trained.gauge, "train_prior": list(prior), "absorbed": trained.absorbed, "feature_norm": None,
        "seed": config.seed, "plugins": [p.to_dict() for p in plugins.loaded()],
    }  # fmt: skip
    if m.tokens == 1:
        single, block = alone(trained, config.head)
        rows = rows_preprocessing(m.width).to_dict()
        model = {"name": m.model["name"], "options": {}, "head_alone": block}
        save_model(path / HEAD_MODEL, single, {"model": model, "preprocessing": rows, **described})
        sha = sha256_of(path / HEAD_MODEL)
    if deployable:
        network, block = fuse(cached_backbone(cache), trained, config.head, config.data.test_views, config.data.average)
        model = {"name": m.model["name"], "options": dict(m.model["options"]), "head": block}
        save_model(path / MODEL_FILE, network, {"model": model, "preprocessing": dict(m.preprocessing), **described})
        sha = sha256_of(path / MODEL_FILE)
    source = Source(
        names,
        prior,
        trained.absorbed,
        None if taus is None else tuple(float(v) for v in taus),
        {"name": m.model["name"], "sha256": sha, "run": path.resolve().name},
    )
    _write_predictions(path / "predictions", result.val, result.val_logits, source, held_out(result), result.folds)
    if result.test is not None and result.test_logits is not None:
        _write_predictions(path / "predictions", result.test, result.test_logits, source, "test")
    if posthoc.changes:
        formula_file(path, result, source).save(path / CALIBRATOR_FILE)
    command = export_command(path, result) if deployable else None
    if not cache.has_backbone:
        command = export_command(path, result, "--head-only")
    write_json(path / HEAD_FILE, summary(result, cache, command))
    lines = [json.dumps({"epoch": i + 1, "train_loss": v}) for i, v in enumerate(trained.history)]
    write_text(path / "metrics.jsonl", "".join(f"{line}\n" for line in lines))
    return HeadRun(path, command)


def formula_file(path: Path, result: HeadResult, source: Source) -> Calibrator:
    """The whole formula of the head: map, prior correction (total strength absorbed + tau / T) and what they saw."""
    posthoc, labels, config = result.posthoc, result.val.labels, result.config.posthoc
    counts, file = result.prior, path / "predictions" / f"{held_out(result)}.parquet"
    train = tuple(shares(counts, smooth=0.0 if counts.min() > 0 else 1.0).tolist())
    context: dict[str, Any] = {
        "rows": len(labels), "prior": (np.bincount(labels, minlength=len(counts)) / len(labels)).tolist(),
        "sha256": PredictionsFile.open(file).sha256(),
        "rows_sha256": rows_sha256(result.val_logits, labels), "path": file.name, "model": dict(source.model),
        "by_hand": bool(config.recall or config.precision or config.temperature == "per-class"),
    }  # fmt: skip
    if posthoc.strength:
        context |= {"strength": posthoc.strength, "log_prior_ratio": posthoc.ratio.tolist()}
    if posthoc.population is not None:
        context |= {
            "weighted": True,
            "population": posthoc.population.tolist(),
            "target_prior": str(config.target_prior),
        }
    prior = Prior(train, None, result.trained.absorbed, posthoc.strength)
    return with_prior(posthoc.calibrator(), prior, source).with_context(
        fitted_on=context, metrics=dict(result.test_metrics or result.val_metrics)
    )


def export_command(path: Path, result: HeadResult, *more: str) -> str:
    """The calibrator brings the prior correction along."""
    # A bare name could be one of export's own commands, as "run" is.
    words = ["calibrant", "export", str(path) if len(path.parts) > 1 else f"./{path}"]
    if result.posthoc.changes:
        words += ["--calibrator", str(path / CALIBRATOR_FILE)]
    return shlex.join([*words, *more, "--out", "model.onnx"])


def summary(result: HeadResult, cache: FeatureCache, command: str | None) -> dict[str, Any]:
    p = result.posthoc
    return {
        "kind": "head", "format_version": 1, "features": cache.path.name, "model": dict(cache.manifest.model),
        "train_images": int(result.counts.sum()), "val_images": len(result.val.labels),
        "test_images": 0 if result.test is None else len(result.test.labels),
        "val": result.val_metrics, "test": result.test_metrics, "test_intervals": result.test_intervals,
        "corrections": result.corrections, "total_strength": result.total_strength,
        "double_correction": result.double_correction(),
        "posthoc": {
            "tau": p.tau, "strength": p.strength,
            "temperature": float(1 / p.weights[0]) if np.ptp(p.weights) == 0 else None,
            "unmet_classes": [cache.class_names[k] for k in p.unmet],
        },
        "export": command,
    }  # fmt: skip


def held_out(result: HeadResult) -> str:
    """What the file of the rows is called that the head is judged by: out of fold, or validation."""
    return "val" if result.folds is None else OUT_OF_FOLD


def _write_predictions(
    folder: Path, part: FeatureRows, logits: Any, source: Source, split: str, folds: NDArray[np.intp] | None = None
) -> None:
    groups = {} if folds is None else {FOLD: tuple(map(str, folds))}
    rows = Predictions(
        part.ids, part.labels, np.asarray(logits, np.float32), source, split=(split,) * len(part.labels), groups=groups
    )
    rows.write(folder / f"{split}.parquet")
