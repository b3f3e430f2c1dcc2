"""What `calibrant export` can be told, on the command line or as [export] of a TOML file, under the same names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, DataError, did_you_mean


@dataclass(frozen=True)
class ExportConfig:
    calibrator: Path | None = None
    adjust: float | None = None  # total strength; None applies nothing beyond what training absorbed
    target_prior: str | None = None  # "uniform", a JSON file, or shares "0.2,0.5,0.3"
    prior_floor: float | None = None
    knobs: Literal["baked", "runtime", "required"] = "baked"
    input: Literal["uint8", "float32"] = "uint8"
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


def read_prior(text: str, class_names: tuple[str, ...], *, where: str = "--target-prior") -> NDArray[np.float64] | None:
    """A prior from the command line: None for "uniform"; a JSON file with a list or a table by class; or numbers."""
    if text == "uniform":
        return None
    if Path(text).suffix == ".json":
        try:
            found = json.loads(Path(text).read_text())
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", where=text) from None
        except ValueError as error:
            raise DataError(f"not JSON ({error})", where=text) from None
        return _values(found, class_names, text)
    try:
        return _values([float(v) for v in text.split(",")], class_names, where)
    except ValueError:
        raise ConfigError(
            f'"{text}" is not a prior', where=where,
            fix='give "uniform", numbers like 0.2,0.5,0.3, or a .json file with a list or a table by class',
        ) from None  # fmt: skip


def _values(found: Any, class_names: tuple[str, ...], where: str) -> NDArray[np.float64]:
    if isinstance(found, dict):
        for name in found:
            if name not in class_names:
                raise DataError(f'no class "{name}"', where=where, fix=did_you_mean(name, class_names))
        missing = [n for n in class_names if n not in found]
        if missing:
            raise DataError(f'class "{missing[0]}" has no share ({len(missing)} missing)', where=where)
        found = [found[n] for n in class_names]
    if not isinstance(found, list) or len(found) != len(class_names):
        n = len(found) if isinstance(found, list) else 0
        raise DataError(f"{n} shares for {len(class_names)} classes", where=where)
    try:
        return np.array([float(v) for v in found])
    except (TypeError, ValueError):
        raise DataError("shares must be numbers", where=where) from None
