from __future__ import annotations

import pytest

from calibrant.serve.protocol.request import JSON_VALUE, MOST_JSON, Target
from calibrant.serve.protocol.tensors import TensorSpec


@pytest.mark.parametrize(
    ("datatype", "shape", "batched", "most", "binary"),
    [
        ("FP32", (-1, 3, 8, 8), True, (64 << 10) + JSON_VALUE * 100 * 192, 100 * 192 * 4),
        ("UINT8", (-1, 3, 224, 224), True, MOST_JSON, 100 * 3 * 224 * 224),
        ("FP32", (3, 8), False, (64 << 10) + JSON_VALUE * 24, 96),
        ("FP32", (-1, -1), True, MOST_JSON, None),  # whatever size it is
        ("BYTES", (-1, 1), True, MOST_JSON, None),  # as long as texts are
    ],
)
def test_how_much_json_and_how_many_bytes_a_model_needs(
    datatype: str, shape: tuple[int, ...], batched: bool, most: int, binary: int | None
) -> None:
    target = Target("m", {"x": TensorSpec("x", datatype, shape)}, {}, {}, batched, 100, True)
    assert (target.most_json, target.most_binary) == (most, binary)
