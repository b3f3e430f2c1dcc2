"""What `calibrant export` can be told, on the command line or as [export] of a TOML file, under the same names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calibrant.errors import ConfigError

Input = Literal["uint8", "float32", "rows"]  # rows: features of a head without its backbone


@dataclass(frozen=True)
class ExportConfig:
    calibrator: Path | None = None
    adjust: float | None = None  # total strength; None applies nothing beyond what training absorbed
    target_prior: str | None = None  # as calibrant.priors reads it
    prior_floor: float | None = None
    knobs: Literal["baked", "runtime", "required"] = "baked"
    input: Literal["uint8", "float32"] = "uint8"
    head_only: bool = False  # of a head run: the head without its backbone, on rows of features
    features: bool = False  # the output `features`
    ood: Literal["none", "energy", "max-softmax", "feature-norm"] = "none"
    opset: int = 18
    abstain_below: float | None = None
    name: str | None = None
    description: str = ""
    author: str | None = None
    licence: str | None = None
    images: Path | None = None  # real images for the comparison with torch
    verify: bool = True

    def outputs(self) -> tuple[str, ...]:
        wanted = ["probabilities", "logits"]
        wanted += ["features"] if self.features else []
        wanted += ["ood_score"] if self.ood != "none" else []
        return tuple(wanted)


def check_threshold(confidence: float) -> None:
    if not 0 <= confidence <= 1:
        raise ConfigError(f"a threshold is a probability, got {confidence}")
