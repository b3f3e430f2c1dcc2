"""A fixed batch is freed where runs of one and of three rows say so, else kept and written down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from calibrant.errors import ModelError
from calibrant.export.adoption.pictures import random_pictures
from calibrant.export.checks.parity import session
from calibrant.serve.engine.classifier import load

from .conftest import NAMES, SIZE, WIDTH, Foreigners, Maker, spread


def plain(m: Maker) -> str:
    return m.put("Softmax", m.head(m.body()), axis=1)


def reshaped(m: Maker) -> str:
    """As dynamo writes a view of [1, 8]: the batch stands in the target shape."""
    f = m.put("GlobalAveragePool", m.body(pool=False))
    return m.head(m.put("Reshape", f, m.weight([1, WIDTH], dtype=np.int64)))


def class_token(m: Maker) -> str:
    """A constant expanded over the batch, as a vision transformer's class token is."""
    token = m.weight(np.zeros((2, 1)))
    f = m.put("Concat", m.body(), token, axis=1)
    w, b = spread(m.rng, len(NAMES))
    wide = np.hstack([w, np.zeros((len(NAMES), 1))])
    return m.put("Gemm", f, m.weight(wide), m.weight(b), transB=1)


@pytest.mark.parametrize("build", [plain, reshaped])
def test_a_batch_of_one_is_freed(build: object, foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(build, shape=(1, 3, SIZE, SIZE)))  # type: ignore[arg-type]
    assert done.body.batch == "N"
    assert done.card.adopted is not None
    assert done.card.adopted["batch"] == "N"
    got = session(foreigners.adopted).run(["logits"], {"images": random_pictures(5, (SIZE, SIZE))})[0]
    assert got.shape == (5, len(NAMES))


def test_a_class_token_keeps_the_batch_and_the_card_says_so(foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(class_token, shape=(2, 3, SIZE, SIZE)))
    assert done.body.batch == 2
    assert done.card.adopted is not None
    assert done.card.adopted["batch"] == 2
    assert done.proof.passed
    model = onnx.load(str(foreigners.adopted))
    dims = [v.type.tensor_type.shape.dim[0].dim_value for v in [*model.graph.input, *model.graph.output]]
    assert dims == [2, 2, 2]


def test_scales_that_are_taken_from_the_whole_batch_keep_it_at_one(foreigners: Foreigners, tmp_path: Path) -> None:
    """Dynamic int8: the largest value of all rows sets the step of each, so a row would answer otherwise in company."""
    from onnxruntime.quantization import quantize_dynamic

    path = tmp_path / "dynamic.onnx"
    quantize_dynamic(foreigners.write(plain), path)
    pixels = random_pictures(16, (SIZE, SIZE))
    x = np.ascontiguousarray(np.moveaxis(pixels, -1, 1) / np.float32(255))
    run = session(path, level="disabled")
    alone = np.concatenate([run.run(None, {"input": x[i : i + 1]})[0] for i in range(16)])
    assert np.abs(run.run(None, {"input": x})[0] - alone).max() > 1e-3  # what is to be kept out
    done = foreigners.adopt(path)
    assert done.body.batch == 1
    assert "depend on its neighbours" in done.notes[0]
    found = load(foreigners.adopted).predict(pixels).probabilities
    np.testing.assert_allclose(found, alone, atol=1e-3)  # the file loaded is optimised, the other is not


def test_a_batch_that_is_free_in_name_only(foreigners: Foreigners) -> None:
    with pytest.raises(ModelError, match="batch free in name only"):
        foreigners.adopt(foreigners.write(class_token, shape=("n", 3, SIZE, SIZE)))
