"""Puts golden rows into the card of a deployed file: what it answers now, for a server to ask for again."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import golden_rows
from calibrant.artifacts.model_card import KEY, ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_rewrite import rewrite
from calibrant.export.checks.parity import session

log = logging.getLogger(__name__)
LARGEST = 256 << 20  # bytes of a file that an edit runs again; its body would take its size of memory


def renewed(path: str | Path, card: ModelCard) -> ModelCard:
    """After an edit, for which a large file is not run."""
    if Path(path).stat().st_size <= LARGEST:
        return with_golden_rows(path, card)
    log.warning("%s: holds no golden rows any more, since a file of its size is not run for an edit", path)
    return card


def with_golden_rows(path: str | Path, card: ModelCard) -> ModelCard:
    """Asks the file, which has this card, and writes the answers into its card. One that cannot be asked stays as it
    is."""
    opened = session(path)
    spec = next((i for i in opened.get_inputs() if i.name == card.input.name), None)
    batch = spec.shape[0] if spec is not None and isinstance(spec.shape[0], int) else None

    def run(rows: NDArray[Any]) -> NDArray[Any]:
        some = rows if batch is None else np.resize(rows, (-(-len(rows) // batch) * batch, *rows.shape[1:]))
        parts = np.split(some, len(some) // batch) if batch is not None else [some]
        found = [opened.run([golden_rows.OUTPUT], {card.input.name: part})[0] for part in parts]
        return np.asarray(np.concatenate(found)[: len(rows)])

    try:
        golden = golden_rows.record(run, card)
    except Exception as error:  # onnxruntime's exception types share no public base
        log.warning("%s: no golden rows, since it cannot be asked (%s)", path, str(error).splitlines()[0][:200])
        return card
    if golden is None:
        return card
    card = replace(card, golden=golden)
    rewrite(OnnxFile.open(path), path, metadata=lambda _: {KEY: card.to_json()})
    return card
