"""Joins a body on disk, a model card and a tail into a deployed file. Export and every edit end here.

Needs neither torch nor the onnx package.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant._version import __version__
from calibrant.artifacts.model_card import KEY, ModelCard
from calibrant.artifacts.onnx_file import OWN, OnnxFile
from calibrant.artifacts.onnx_rewrite import rewrite
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.errors import FormatError
from calibrant.export.graph.fold import Array, recoverable, tail_steps
from calibrant.export.graph.tail import Knobs, Ood, Tail

RAW_HEAD = "calibrant.raw_head"  # metadata key of a classifier into which a matrix was folded


def calibrator_of(card: ModelCard) -> Calibrator | None:
    """The fitted calibrator that the card holds."""
    if card.calibrator is None:
        return None
    return Calibrator.from_dict(dict(card.calibrator))


def build_tail(
    card: ModelCard, weight: Array | None, bias: Array | None, feature_dim: int | None, batch: int | str = "N"
) -> Tail:
    """The tail that the card describes, on the raw classifier (None: the tail starts from logits)."""
    if card.head is None:
        raise FormatError("the file's metadata names no head", fix="export again")
    calibrator, shift, knobs = calibrator_of(card), card.prior.shift(), None
    if card.knobs != "baked":
        knobs = _knobs(card, calibrator)
        shift = None
        if calibrator is not None and calibrator.method == "temperature":
            calibrator = None  # it is the default of the input
    steps = tail_steps(
        len(card.classes),
        class_temperatures=card.class_temperatures,
        gauge=card.gauge,
        calibrator=calibrator,
        shift=shift,
    )
    ood = Ood(card.ood["kind"], card.ood.get("mu", 0.0), card.ood.get("sd", 1.0)) if card.ood else None
    classes, source = len(card.classes), card.head.input
    independent = card.independent
    return Tail(classes, source, weight, bias, steps, card.outputs, feature_dim, knobs, ood, batch, independent)


def knob_defaults(card: ModelCard) -> dict[str, NDArray[np.float32]]:
    """One row of each knob, as the baked file would use it; what a caller feeds a file with required knobs."""
    knobs = _knobs(card, calibrator_of(card))
    return {
        "temperature": np.full((1, 1), knobs.temperature, np.float32),
        "adjust_strength": np.full((1, 1), knobs.adjust_strength, np.float32),
        "log_prior_ratio": knobs.log_prior_ratio.astype(np.float32).reshape(1, -1),
    }


def _knobs(card: ModelCard, calibrator: Calibrator | None) -> Knobs:
    """Defaults that give what the baked file would give."""
    temperature = 1.0
    if calibrator is not None and calibrator.method == "temperature":
        temperature = float(calibrator.parameters["temperature"])
    prior, required = card.prior, card.knobs == "required"
    if prior.train is None:
        return Knobs(temperature, 0.0, np.zeros(len(card.classes)), required)
    if prior.absorbed and prior.target is not None:  # strength and ratio do not separate: the ratio is the whole shift
        shift = prior.shift()
        return Knobs(temperature, 1.0, np.zeros(len(card.classes)) if shift is None else shift, required)
    return Knobs(temperature, prior.applied, prior.log_ratio(), required)


def raw_head(file: OnnxFile, card: ModelCard) -> tuple[Array, Array] | None:
    """The classifier before anything was folded into it, in float64; None where the tail starts from logits."""
    if card.head is None or card.head.kind == "logits":
        return None
    classes = len(card.classes)
    if card.head.raw_key is not None:
        try:
            values = np.frombuffer(base64.b64decode(file.metadata[card.head.raw_key]), "<f4").astype(np.float64)
        except (KeyError, ValueError) as error:
            raise FormatError(f"the raw classifier is missing ({error})", where=file.path, fix="export again") from None
        return values[classes:].reshape(classes, -1), values[:classes]
    try:
        weight, bias = file.array(card.head.weight), file.array(card.head.bias)
    except KeyError as error:
        raise FormatError(f"the classifier {error} is not in the graph", where=file.path, fix="export again") from None
    if weight.dtype != np.float32 or weight.shape[0] != classes or bias.shape != (classes,):
        raise FormatError(
            f"its classifier is {weight.dtype} {weight.shape}, expected float32 [{classes}, D]",
            where=file.path,
            fix="export again; quantize with calibrant quantize, which keeps the head in float",
        )
    w, b = weight.astype(np.float64), bias.astype(np.float64)
    del weight
    folded = build_tail(card, w, b, w.shape[1]).folded()
    if folded.diagonal:  # in place: of a thousand classes each copy is as large as a sixth of a ResNet-50
        w /= folded.a[:, None]
        b = (b - folded.c) / folded.a
    return w, b


def write_deployed(
    body: OnnxFile, path: str | Path, card: ModelCard, tail: Tail, *, extra: Mapping[str, str] | None = None
) -> ModelCard:
    """Writes body + tail + card to `path`; gives the card with its hashes in."""
    keys = dict(extra or {})
    head = card.head
    if head is not None and head.kind == "gemm":
        keep_raw = False
        if tail.weight is not None and tail.bias is not None:
            keep_raw = not recoverable(tail.folded(), tail.bias)
        head = replace(head, raw_key=RAW_HEAD if keep_raw else None)
        if keep_raw and tail.weight is not None and tail.bias is not None:
            raw = np.concatenate([tail.bias.ravel(), tail.weight.ravel()]).astype("<f4")
            keys[RAW_HEAD] = base64.b64encode(raw.tobytes()).decode()
    if card.author:
        keys["model_author"] = card.author
    if card.licence:
        keys["model_license"] = card.licence
    final = replace(card, head=head, golden=None)  # another graph, other answers

    def metadata(written: OnnxFile) -> Mapping[str, str]:
        nonlocal final
        final = replace(final, hashes=written.hashes())
        return {**keys, KEY: final.to_json()}

    dropped = {KEY, RAW_HEAD, "model_author", "model_license", *keys}
    inputs = [v for v in body.inputs if not v.name.startswith(OWN)]
    rewrite(
        body,
        path,
        edit=tail.edit(inputs),
        metadata=metadata,
        drop_keys=dropped,
        producer=("calibrant", __version__),
        description=card.description,
    )
    return final


def feature_dim(file: OnnxFile, card: ModelCard) -> int | None:
    """Width of the `features` value: as recorded, else of the output, else of what the classifier takes."""
    if card.head is not None and card.head.feature_dim is not None:
        return card.head.feature_dim
    for value in file.outputs:
        if value.name == "features" and isinstance(value.dims[-1], int):
            return value.dims[-1]
    if card.head is not None and card.head.kind == "gemm" and card.head.input == "features":
        return file.initializers[card.head.weight].dims[1]
    return None
