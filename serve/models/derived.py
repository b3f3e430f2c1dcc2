"""Outputs that the server computes from what the graph returns, when a request names them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.serve.engine.result import Result
from calibrant.serve.engine.session import Session
from calibrant.serve.protocol.tensors import TensorSpec


def specs(session: Session) -> dict[str, TensorSpec]:
    if session.card is None or "logits" not in session.outputs:
        return {}
    classes = len(session.card.classes)
    known = [
        TensorSpec("probabilities", "FP32", (-1, classes)),
        TensorSpec("label", "BYTES", (-1, 1)),
        TensorSpec("index", "INT64", (-1, 1)),
        TensorSpec("confidence", "FP32", (-1, 1)),
        TensorSpec("abstained", "BOOL", (-1, 1)),
        TensorSpec("prediction_set", "BOOL", (-1, classes)),
        TensorSpec("top", "INT64", (-1, -1)),
        TensorSpec("ood_score", "FP32", (-1, 1)),
    ]
    if session.card.independent:
        known.append(TensorSpec("present", "BOOL", (-1, classes)))
    return {s.name: s for s in known if s.name not in session.outputs}


def tensors(result: Result) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {
        "label": np.array([[name] for name in result.names], object),
        "index": result.labels[:, None],
        "confidence": result.confidence[:, None],
        "abstained": result.abstained[:, None],
        "top": result.top,
    }
    if result.prediction_sets is not None:
        found["prediction_set"] = result.prediction_sets
    if result.present is not None:
        found["present"] = result.present
    if result.ood_score is not None:
        found["ood_score"] = result.ood_score[:, None]
    return found
