"""A predictions file, and a command's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import Predictions, Source

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """1,500 rows of the golden ResNet-20, of class names that are no HTML."""
    with np.load(GOLDEN / "resnet20_cal.npz") as data:
        names, labels, logits = data["classes"], data["labels"], data["logits"]
    prior = np.linspace(1, 3, 10)
    source = Source(tuple(f"{name} <b>" for name in names), train_prior=tuple((prior / prior.sum()).tolist()))
    path = tmp_path / "val.parquet"
    Predictions(tuple(map(str, range(1500))), labels[:1500], logits[:1500], source).write(path)
    return path


@pytest.fixture
def run() -> Callable[..., str]:
    def of(command: click.Command, *arguments: object) -> str:
        result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return of
