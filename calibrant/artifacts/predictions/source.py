"""What a predictions file says about the model and the classes: JSON in the metadata of its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calibrant.artifacts.foreign.kinds import Rounded
from calibrant.artifacts.foreign.outcome import OUTCOMES, Outcome
from calibrant.errors import FormatError

FORMAT_VERSION = 2  # 2: independent labels, which a reader of version 1 would take for classes
KEY = b"calibrant"  # in the metadata


@dataclass(frozen=True)
class Source:
    """What a predictions file says about the model and the classes; equal over all its shards."""

    class_names: tuple[str, ...]
    train_prior: tuple[float, ...] | None = None  # share of each class in the training set
    absorbed: float = 0.0  # strength of the prior correction that the training loss already made
    class_temperatures: tuple[float, ...] | None = None  # already applied to the logits
    model: Mapping[str, Any] = field(default_factory=dict)  # name, hash, run ...
    outcome: Outcome = "exclusive"
    rounded: Rounded | None = None  # the logits are of rounded probabilities, and their zeros decide what is fitted

    @property
    def independent(self) -> bool:
        return self.outcome == "independent"

    def to_json(self) -> str:
        block = {
            "kind": "predictions", "format_version": FORMAT_VERSION if self.independent else 1,
            "class_names": list(self.class_names),
            **({"outcome": self.outcome} if self.independent else {}),
            **({} if self.rounded is None else {"rounded": asdict(self.rounded)}),
            "train_prior": list(self.train_prior) if self.train_prior is not None else None,
            "absorbed": self.absorbed,
            "class_temperatures": list(self.class_temperatures) if self.class_temperatures is not None else None,
            "model": dict(self.model),
        }  # fmt: skip
        return json.dumps(block, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str | Path) -> Source:
        try:
            block = json.loads(text)
            version = int(block["format_version"])
            if version > FORMAT_VERSION:
                raise FormatError(
                    f"predictions format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
                    where=where,
                    fix="update calibrant",
                )
            prior, taus = block.get("train_prior"), block.get("class_temperatures")
            outcome, rounded = block.get("outcome", "exclusive"), block.get("rounded")
            if outcome not in OUTCOMES:
                raise ValueError(f"outcome {outcome!r}")
            source = cls(
                tuple(map(str, block["class_names"])),
                tuple(map(float, prior)) if prior is not None else None,
                float(block.get("absorbed", 0.0)),
                tuple(map(float, taus)) if taus is not None else None,
                dict(block.get("model", {})),
                outcome,
                None if rounded is None else Rounded(float(rounded["floor"]), float(rounded["zeros"])),
            )
        except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
            raise FormatError(f"damaged predictions metadata ({error})", where=where) from None
        for name, values in (("train_prior", source.train_prior), ("class_temperatures", source.class_temperatures)):
            if values is not None and len(values) != len(source.class_names):
                raise FormatError(f"{name} has {len(values)} values for {len(source.class_names)} classes", where=where)
        return source
