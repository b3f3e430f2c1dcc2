"""Nothing is written unless the adopted file says what the foreign one does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.errors import CheckFailed
from calibrant.export.adoption import adopt as adopting
from calibrant.export.adoption.body import ForeignBody
from calibrant.export.adoption.proof import Proof

from .conftest import Foreigners


def test_a_changed_weight_is_seen_and_no_file_appears(
    foreigners: Foreigners, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real: Callable[..., ForeignBody] = adopting.make_body

    def spoiled(*args: Any, **options: Any) -> ForeignBody:
        body = real(*args, **options)
        kernel = next(t for t in body.model.graph.initializer if len(t.dims) == 4)
        values = np.frombuffer(kernel.raw_data, np.float32).copy()
        values[5] += 0.1
        kernel.raw_data = values.tobytes()
        return body

    path = foreigners.write(lambda m: m.put("Softmax", m.head(m.body()), axis=1))
    monkeypatch.setattr(adopting, "make_body", spoiled)
    with pytest.raises(CheckFailed, match="does not say what the foreign one does: 16 random pictures"):
        foreigners.adopt(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["foreign.onnx"]


def test_the_card_holds_the_proof(foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(lambda m: m.head(m.body())))
    assert done.card.verify is not None
    assert done.card.verify["against"] == "the foreign file"
    assert done.card.verify["max_diff"]["probabilities"] == done.proof.difference


def test_agreement_on_answers_that_never_change_is_called_so() -> None:
    proof = Proof({"random": 16}, 0.0, True, 1e-5, "float32", 1e-6, True)
    assert "hardly depend on the picture" in proof.line
