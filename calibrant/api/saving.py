"""From one's own training loop to a run folder that everything else reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant import plugins
from calibrant.api.prediction import load_predictions
from calibrant.api.run import Run
from calibrant.artifacts.predictions import Predictions
from calibrant.atomic import write_json, write_text
from calibrant.config import to_table
from calibrant.errors import ConfigError, DataError, ModelError
from calibrant.images.preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn

ONNX_FILE = "model.onnx"  # of a network that cannot be built again from a name


def save_run(
    path: str | Path,
    model: nn.Module,
    class_names: Sequence[str],
    preprocessing: Any,
    predictions: Any,
    *,
    name: str | None = None,
    head: str | None = None,
    train_prior: Sequence[float] | None = None,
    history: Iterable[Mapping[str, Any]] = (),
    overwrite: bool = False,
) -> Run:
    """Writes a network that was trained elsewhere as a run folder, and gives it.

    preprocessing: a Preprocessing, timm's data configuration, or a Hugging Face image processor: how pictures became
    the network's input. predictions: held-out ones as `load_predictions` takes them, (scores, labels), or several by
    split, {"val": ..., "test": ...}. `name`: of a plugin's model. timm's models, those of transformers and those of
    plugins can be exported, predicted with and resumed from as any run; any other network is kept as model.onnx, and
    `head` names the module that makes its logits, so that calibration folds into it.
    """
    import torch

    from calibrant.train.run.results import claim

    out, classes = Path(path), tuple(map(str, class_names))
    prepared = read_preprocessing(preprocessing)
    sets = {split: _of_split(given, classes) for split, given in _by_split(predictions).items()}
    claim(out, overwrite=overwrite)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            described, sha = _keep(out, model, classes, prepared, name, head, train_prior)
    finally:
        model.train(was_training)
    for split, rows in sets.items():
        about = {**rows.source.model, "name": described, "sha256": sha, "run": out.resolve().name}
        prior = rows.source.train_prior if train_prior is None else tuple(map(float, train_prior))
        source = replace(rows.source, class_names=classes, train_prior=prior, model=about)
        replace(rows, source=source, split=(split,) * len(rows)).write(out / "predictions" / f"{split}.parquet")
    _write_config(out, described, classes, prepared, {split: len(rows) for split, rows in sets.items()})
    if history:
        import json

        write_text(out / "metrics.jsonl", "".join(f"{json.dumps(dict(line))}\n" for line in history))
    return Run(out)


def read_preprocessing(given: Any) -> Preprocessing:
    """How pictures become input, of whatever describes it."""
    if isinstance(given, Preprocessing):
        return given
    if hasattr(given, "to_dict") and not isinstance(given, Mapping):
        given = given.to_dict()
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{type(given).__name__} does not say how pictures are prepared",
            where="preprocessing",
            fix="give a Preprocessing, timm.data.resolve_data_config(...), or a Hugging Face image processor",
        )
    if "input_size" in given:  # timm
        size = given["input_size"]
        missing = [key for key in ("mean", "std", "interpolation", "crop_pct") if key not in given]
        if missing:
            raise ConfigError(
                f"says no {', '.join(missing)}",
                where="preprocessing",
                fix="give all that timm.data.resolve_data_config(...) gives",
            )
        return Preprocessing.of_timm({"crop_mode": "center", **given}, (int(size[-2]), int(size[-1])))
    if "image_mean" in given or "do_normalize" in given:
        from calibrant.images.declared.huggingface import of_hugging_face

        return of_hugging_face(given, "preprocessing").preprocessing
    return Preprocessing.from_dict(dict(given), where="preprocessing")


def _by_split(given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping) and given and set(given) <= {"val", "test", "train"}:
        return given
    return {"val": given}


def _of_split(given: Any, classes: Sequence[str]) -> Predictions:
    scores, labels = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    named = {} if isinstance(scores, Predictions) else {"class_names": classes}
    rows = load_predictions(scores, labels, **named)  # type: ignore[arg-type]
    if len(rows.class_names) != len(classes):
        raise DataError(f"predictions of {len(rows.class_names)} classes for {len(classes)} class names")
    return rows


def _keep(
    out: Path,
    model: Any,
    classes: tuple[str, ...],
    prepared: Preprocessing,
    name: str | None,
    head: str | None,
    train_prior: Sequence[float] | None,
) -> tuple[str, str | None]:
    """Writes the network; gives its name and the hash of its weights."""
    from calibrant.train.model.rebuilding import described
    from calibrant.train.run.folder import MODEL_FILE, save_model, sha256_of

    found = described(model, len(classes), prepared, name)
    if found is None:
        return _keep_onnx(out, model, classes, prepared, head, train_prior)
    shares = [1 / len(classes)] * len(classes) if train_prior is None else list(map(float, train_prior))
    block = {
        "model": {
            "name": found.name, "options": found.options, "cosine_head": False, "small_stem": False,
            "token_reduction": None,
        },
        "class_names": list(classes), "preprocessing": prepared.to_dict(), "class_temperatures": None, "gauge": "none",
        "train_prior": shares, "absorbed": 0.0, "feature_norm": None, "loss": {"name": "elsewhere", "options": {}},
        "plugins": [p.to_dict() for p in plugins.loaded()],
    }  # fmt: skip
    save_model(out / MODEL_FILE, found.network, block)
    return found.name, sha256_of(out / MODEL_FILE)


def _keep_onnx(
    out: Path,
    model: Any,
    classes: tuple[str, ...],
    prepared: Preprocessing,
    head: str | None,
    train_prior: Sequence[float] | None,
) -> tuple[str, str | None]:
    import copy

    from calibrant.export.to_onnx import export_onnx
    from calibrant.train.model.feature_model import FeatureModel
    from calibrant.train.model.foreign import headed, last_linear

    network: Any = copy.deepcopy(model)
    cfg = {"input_size": (3, *prepared.size)}
    try:
        network = FeatureModel(
            headed(network, head or last_linear(network, len(classes)), cfg), input_size=prepared.size
        )
    except ModelError:
        if head is not None:
            raise
        network = copy.deepcopy(model)  # logits alone: calibration then stands behind the graph
    export_onnx(network, out / ONNX_FILE, class_names=classes, preprocessing=prepared, train_prior=train_prior)
    return type(model).__name__, None


def _write_config(
    out: Path, name: str, classes: Sequence[str], prepared: Preprocessing, counts: Mapping[str, int]
) -> None:
    from calibrant.train.config import ModelConfig, TrainConfig
    from calibrant.train.run.checkpoint import environment
    from calibrant.train.run.folder import CONFIG_FILE, FORMAT_VERSION

    config = TrainConfig(out=out, model=ModelConfig(name=name))
    write_json(
        out / CONFIG_FILE,
        {
            "kind": "run", "format_version": FORMAT_VERSION, "task": "saved", "config": to_table(config),
            "class_names": list(classes), "preprocessing": prepared.to_dict(), "images": dict(counts),
            "environment": environment(), "plugins": [p.to_dict() for p in plugins.loaded()],
        },
    )  # fmt: skip


def logits_and_labels(rows: Sequence[tuple[Any, Any]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Batches of tensors or arrays as two arrays."""
    from calibrant.api.prediction import to_numpy

    return np.concatenate([to_numpy(z) for z, _ in rows]), np.concatenate([to_numpy(y) for _, y in rows])
