from __future__ import annotations

import pytest

from calibrant.serve.protocol.request import JSON_VALUE, MOST_JSON, Target
from calibrant.serve.protocol.tensors import TensorSpec


@pytest.mark.parametrize(
    ("datatype", "shape", "batched", "most"),
    [
        ("FP32", (-1, 3, 8, 8), True, (64 << 10) + JSON_VALUE * 100 * 192),
        ("FP32", (-1, 3, 224, 224), True, MOST_JSON),
        ("FP32", (3, 8), False, (64 << 10) + JSON_VALUE * 24),
        ("FP32", (-1, -1), True, MOST_JSON),  # whatever size it is
        ("BYTES", (-1, 1), True, MOST_JSON),  # as long as texts are
    ],
)
def test_how_much_json_a_model_needs(datatype: str, shape: tuple[int, ...], batched: bool, most: int) -> None:
    target = Target("m", {"x": TensorSpec("x", datatype, shape)}, {}, {}, batched, 100, True)
    assert target.most_json == most
