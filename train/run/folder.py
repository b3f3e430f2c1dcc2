"""A trained run on disk and in memory: what export, prediction and the dashboard read.

A run folder holds config.json (the resolved configuration and where it ran), model.safetensors (the best epoch; a JSON
block in its header describes it, so this one file is enough to use the model), checkpoint.safetensors (to resume),
metrics.jsonl, predictions/*.parquet, tb/ and, where asked for, epochs/ with the files of the best epochs.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant import plugins
from calibrant.artifacts.predictions import Source
from calibrant.config import build
from calibrant.errors import FormatError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.losses.shared.gauge import check_gauge, gauged
from calibrant.train.model.feature_model import FeatureModel, build_model
from calibrant.train.run.epoch_files import FOLDER as EPOCHS_FOLDER
from calibrant.train.run.tensors import write_tensors
from calibrant.train.vit.config import TokenReduction, stored

FORMAT_VERSION = 1
MODEL_FILE, CONFIG_FILE, CHECKPOINT_FILE = "model.safetensors", "config.json", "checkpoint.safetensors"


@dataclass(frozen=True)
class TrainedModel:
    """The best epoch of a run. The model's probability is softmax(adjust(logits)), see `adjust`."""

    network: FeatureModel  # in eval mode
    model_name: str
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    class_temperatures: NDArray[np.float32] | None  # tau (C,), divides the logits
    gauge: str  # what is done to the logits before
    train_prior: NDArray[np.float64]  # (C,), share of each class in training
    absorbed: float  # strength of the prior correction that the loss made
    feature_norm: tuple[float, float] | None  # running mean and deviation of the features' L1 norm (FeDLaS)
    sha256: str  # of model.safetensors
    run: Path

    def adjust(self, logits: Tensor) -> Tensor:
        """g(z) / tau, as the loss saw it in training. logits: (N, C)."""
        z = gauged(logits.float(), self.gauge)
        if self.class_temperatures is None:
            return z
        return z / torch.as_tensor(self.class_temperatures, device=z.device, dtype=z.dtype)

    def source(self) -> Source:
        """What predictions files say about this model."""
        taus = self.class_temperatures
        return Source(
            self.class_names,
            tuple(map(float, self.train_prior)),
            self.absorbed,
            None if taus is None else tuple(map(float, taus)),
            {"name": self.model_name, "sha256": self.sha256, "run": self.run.resolve().name},
        )


def save_model(path: Path, network: FeatureModel, block: Mapping[str, Any]) -> None:
    """Write the weights with the JSON block in the header. Tensors that share memory are stored once each."""
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in network.network.state_dict().items()}
    text = json.dumps({"kind": "run-model", "format_version": FORMAT_VERSION, **block}, allow_nan=False)
    write_tensors(path, tensors, text)


def load_run(path: str | Path) -> TrainedModel:
    """The trained model of a run folder, or of its model.safetensors."""
    path = Path(path)
    file = path if path.is_file() else _model_file(path)
    block = read_header(file, kind="run-model")
    try:
        model = block["model"]
        plugins.require(block.get("plugins", ()), "models", str(model["name"]), file)
        classes = tuple(map(str, block["class_names"]))
        preprocessing = Preprocessing.from_dict(block["preprocessing"], where=file)
        taus, norm = block["class_temperatures"], block["feature_norm"]
        prior = np.asarray(block["train_prior"], np.float64)
        gauge, absorbed = check_gauge(str(block["gauge"])), float(block["absorbed"])
        network = rebuild(model, len(classes), preprocessing)
        name = str(model["name"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"damaged description of the model ({error})", where=file) from None
    load_weights(network, file)
    return TrainedModel(
        network.eval(),
        name,
        classes,
        preprocessing,
        None if taus is None else np.asarray(taus, np.float32),
        gauge,
        prior,
        absorbed,
        None if norm is None else (float(norm[0]), float(norm[1])),
        sha256_of(file),
        file.parent.parent if file.parent.name == EPOCHS_FOLDER else file.parent,
    )


def rebuild(model: Mapping[str, Any], num_classes: int, preprocessing: Preprocessing) -> FeatureModel:
    """The network of a model block, with weights still to be loaded."""
    if "head" in model:  # a head on a frozen backbone, trained on cached features
        from calibrant.train.heads.fused import rebuild_fused

        return rebuild_fused(model, num_classes, preprocessing)
    if "head_alone" in model:
        from calibrant.train.heads.alone import rebuild_alone

        return rebuild_alone(model["head_alone"], num_classes)
    reduction = model["token_reduction"]
    return build_model(
        str(model["name"]),
        num_classes,
        input_size=preprocessing.size,
        small_stem=bool(model["small_stem"]),
        cosine_head=bool(model["cosine_head"]),
        token_reduction=None
        if reduction is None
        else build(TokenReduction, stored(reduction), where="token_reduction"),
        **model["options"],
    )


def load_weights(network: FeatureModel, file: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.network.load_state_dict(load_file(file))
    except SafetensorError as error:
        raise FormatError(f"damaged weights ({error})", where=file) from None
    except RuntimeError as error:
        first = " ".join(str(error).split())[:200]
        raise FormatError(f"weights do not fit the model that the file names ({first})", where=file) from None


def sha256_of(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_header(file: Path, *, kind: str) -> dict[str, Any]:
    """The JSON block in the header of one of our .safetensors files."""
    try:
        with open(file, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > 100 << 20:
                raise ValueError("header too long")
            header = json.loads(stream.read(length))
    except FileNotFoundError:
        raise FormatError("no such file", where=file) from None
    except (OSError, ValueError, struct.error):
        raise FormatError("not a safetensors file", where=file) from None
    try:
        block = json.loads(header["__metadata__"]["calibrant"])
        found, version = str(block["kind"]), int(block["format_version"])
    except (KeyError, TypeError, ValueError):
        raise FormatError("was not written by calibrant train", where=file) from None
    if found != kind:
        raise FormatError(f"is a {found} file, expected {kind}", where=file)
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{kind} format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
            where=file,
            fix="update calibrant",
        )
    return dict(block)


def read_config(run: Path) -> dict[str, Any]:
    """config.json of a run folder."""
    file = run / CONFIG_FILE
    try:
        block = json.loads(file.read_text())
        found, version = str(block["kind"]), int(block["format_version"])
    except FileNotFoundError:
        raise FormatError(f"is not a run folder: it has no {CONFIG_FILE}", where=run) from None
    except (OSError, KeyError, TypeError, ValueError):
        raise FormatError("is not the config.json of a run", where=file) from None
    if found != "run":
        raise FormatError(f"describes a {found}, expected a run", where=file)
    if version > FORMAT_VERSION:
        raise FormatError(
            f"run format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
            where=file,
            fix="update calibrant",
        )
    model = block.get("config", {}).get("model")
    if isinstance(model, dict) and model.get("token_reduction"):
        model["token_reduction"] = stored(model["token_reduction"])
    return dict(block)


def _model_file(run: Path) -> Path:
    if not run.is_dir():
        raise FormatError("no such run folder", where=run, fix="make one with calibrant train")
    read_config(run)
    if (run / "model.onnx").is_file() and not (run / MODEL_FILE).is_file():
        raise FormatError(
            "was saved from a program as model.onnx, since its network cannot be built from a name",
            where=run,
            fix=f"use {run / 'model.onnx'}; calibrant recalibrate puts a calibrator into it",
        )
    if not (run / MODEL_FILE).is_file():
        raise FormatError(
            "training stopped before its first epoch was complete, so there is no model yet",
            where=run,
            fix=f"go on with: calibrant train --resume --out {run}",
        )
    return run / MODEL_FILE
