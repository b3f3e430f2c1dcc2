"""Edits a deployed file in place of exporting again; needs neither torch nor the onnx package."""

from __future__ import annotations

from pathlib import Path

from calibrant.model_card import KEY, ModelCard
from calibrant.onnx_file import OnnxFile, rewrite


def restamp(path: str | Path, card: ModelCard) -> ModelCard:
    """Replaces the metadata block and nothing else."""
    file = OnnxFile.open(path)
    rewrite(file, path, metadata=lambda _: {KEY: card.to_json()})
    return card
