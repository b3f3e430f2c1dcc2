"""The JSON block inside a deployed .onnx file: everything that the graph alone does not say.

Stored under the key "calibrant" of the file's metadata properties, where any ONNX runtime can read it back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.card_checks import check
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.errors import ConfigError, FormatError
from calibrant.images.preprocessing import Preprocessing
from calibrant.shares import log_prior_ratio

FORMAT_VERSION = 2  # 2: independent labels and rows of numbers, which a reader of version 1 would take for others
KEY = "calibrant"
_WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)  # of a block of another shape


@dataclass(frozen=True)
class InputSpec:
    """What the graph's input takes: `images`, uint8 NHWC (normalised in the graph) or float32 NCHW (by the caller), or
    `rows`, float32 of layout NF, which are no pictures."""

    name: str = "images"
    dtype: str = "uint8"
    layout: str = "NHWC"

    @property
    def pictures(self) -> bool:
        return self.layout != "NF"


def rows_preprocessing(width: int) -> Preprocessing:
    """Of a file that takes rows of numbers: nothing is done to them, and the size is one row."""
    return Preprocessing((1, width), 1, "squash", "nearest", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@dataclass(frozen=True)
class Prior:
    """Class priors and how strongly they were corrected; `applied` is what the graph does on top of the training."""

    train: tuple[float, ...] | None = None
    target: tuple[float, ...] | None = None  # None is uniform
    absorbed: float = 0.0  # by the training loss
    applied: float = 0.0  # total - absorbed; what the graph subtracts is `shift`

    @classmethod
    def from_dict(cls, block: Mapping[str, Any]) -> Prior:
        train, target = (None if block[k] is None else tuple(map(float, block[k])) for k in ("train", "target"))
        return cls(train, target, float(block["absorbed"]), float(block["applied"]))

    @property
    def total(self) -> float:
        return self.absorbed + self.applied

    def log_ratio(self) -> NDArray[np.float64]:
        """r = log(pi_train / pi_target), the vector of the one formula."""
        if self.train is None:
            raise ConfigError("the model does not know its training prior", fix="give --train-prior")
        return log_prior_ratio(self.train, self.target)

    def shift(self) -> NDArray[np.float64] | None:
        """What the graph subtracts from the logits: a log(pi_train / pi_target) - absorbed log(pi_train / uniform).

        The second term is the correction that training already made, which is one towards the uniform prior; with the
        uniform target the two together are (a - absorbed) log(pi_train C). None where that is nothing.
        """
        if self.train is None or (self.applied == 0 and (self.target is None or self.total == 0)):
            return None
        shift = self.total * self.log_ratio()
        return shift - self.absorbed * Prior(self.train).log_ratio() if self.absorbed else shift


@dataclass(frozen=True)
class Head:
    """Where the part of the graph that an edit may replace begins, and the names of the classifier's initializers.

    kind "gemm": the classifier is ours, `input` is its features. kind "logits": the network ends in something that
    no one matrix can stand for (two averaged heads, an activation), `input` is its logits.
    """

    kind: str = "gemm"
    input: str = "features"
    weight: str = "calibrant/head.weight"  # [C, D], as Gemm with transB=1 wants it
    bias: str = "calibrant/head.bias"
    raw_key: str | None = None  # metadata key of the classifier before a map that cannot be undone was folded in
    feature_dim: int | None = None  # width of the value `features`, where the body has one


@dataclass(frozen=True)
class ModelCard:
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    name: str = "model"
    input: InputSpec = InputSpec()
    outputs: tuple[str, ...] = ("probabilities", "logits")
    former_classes: tuple[str, ...] = ()  # before the file was relabelled: folders of pictures still bear them
    outcome: Outcome = "exclusive"  # independent: probabilities are sigmoids, one for each label
    class_temperatures: tuple[float, ...] | None = None
    gauge: str = "none"  # of the class temperatures, see the VACE loss
    calibrator: Mapping[str, Any] | None = None  # the calibrator's own JSON
    prior: Prior = Prior()
    knobs: str = "baked"
    head: Head | None = None
    conformal: Mapping[str, Any] | None = None
    ood: Mapping[str, Any] | None = None
    abstain_below: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    precision: Mapping[str, Any] = field(default_factory=lambda: {"dtype": "float32"})
    verify: Mapping[str, Any] | None = None
    golden: Mapping[str, Any] | None = None  # answers to ask for again, see golden_rows
    source: Mapping[str, Any] = field(default_factory=dict)
    adopted: Mapping[str, Any] | None = None  # the foreign file that it was made of, and what was found there
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str | None = None
    description: str = ""
    author: str | None = None
    licence: str | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The block with its own hash in it."""
        block = {"kind": "deployed-model", "format_version": self._version, **asdict(self)}
        if self._version == 1:
            del block["outcome"]
        if not self.former_classes:
            del block["former_classes"]
        block["hashes"] = {k: v for k, v in self.hashes.items() if k != "block"}
        block["hashes"]["block"] = _block_hash(block)
        return block

    @property
    def independent(self) -> bool:
        return self.outcome == "independent"

    @property
    def _version(self) -> int:
        return FORMAT_VERSION if self.independent or not self.input.pictures else 1

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str | Path, check_hash: bool = True) -> ModelCard:
        """Reads the block; refuses one from the future and one that was changed by something else than Calibrant."""
        try:
            block = json.loads(text)
            version = int(block["format_version"])
            stated = block.get("hashes", {}).get("block")
        except _WRONG as error:
            raise FormatError(f"damaged calibrant metadata ({error})", where=where, fix="export again") from None
        if version > FORMAT_VERSION:
            raise FormatError(
                f"metadata format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
                where=where,
                fix="update calibrant",
            )
        if check_hash and stated != _block_hash(block):
            raise FormatError(
                "the calibrant metadata does not match its own hash: it was edited by hand or damaged",
                where=where,
                fix="export again, or edit with calibrant recalibrate / adjust / relabel",
            )
        try:
            known = cls.__dataclass_fields__
            values = {key: value for key, value in block.items() if key in known}
            values["classes"] = tuple(map(str, block["classes"]))
            values["former_classes"] = tuple(map(str, block.get("former_classes", ())))
            values["preprocessing"] = Preprocessing.from_dict(block["preprocessing"], where=where)
            values["input"] = InputSpec(**block["input"])
            values["prior"] = Prior.from_dict(block["prior"])
            values["head"] = Head(**block["head"]) if block.get("head") else None
            for key in ("outputs", "history"):
                values[key] = tuple(block[key])
            if block.get("class_temperatures") is not None:
                values["class_temperatures"] = tuple(map(float, block["class_temperatures"]))
            card = cls(**values)
            check(card)
            return card
        except _WRONG as error:
            raise FormatError(f"damaged calibrant metadata ({error})", where=where, fix="export again") from None


def _block_hash(block: Mapping[str, Any]) -> str:
    """sha256 of the canonical JSON without the hash itself (a round trip turns tuples to lists, so does this)."""
    hashes = {k: v for k, v in block.get("hashes", {}).items() if k != "block"}
    text = json.dumps({**block, "hashes": hashes}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
