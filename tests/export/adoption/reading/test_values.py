"""Values of a graph as a run shows them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calibrant.errors import ModelError
from calibrant.export.adoption.reading.values import near_the_end, run_rows, run_values
from calibrant.export.checks.parity import session
from calibrant.export.graph.head import Graph

from ..conftest import NAMES, SIZE, Foreigners, Maker

ROWS = np.random.default_rng(0).uniform(0, 1, (5, 3, SIZE, SIZE)).astype(np.float32)


def test_inner_values_have_the_shapes_of_the_run_and_the_model_stays(foreigners: Foreigners) -> None:
    model = onnx.load(str(foreigners.write(lambda m: m.put("Softmax", m.head(m.body()), axis=1))))
    before = model.SerializeToString()
    near = near_the_end(Graph(model), [model.graph.output[0].name])
    found = run_values(model, near, {"input": ROWS})
    assert found[near[1]].shape == (5, len(NAMES))  # the logits, next to the output
    assert {a.shape for a in found.values()} >= {(5, 8), (5, 8, 1, 1), (5, 8, 8, 8)}
    assert model.SerializeToString() == before


def test_a_fixed_batch_is_padded_and_cut(foreigners: Foreigners) -> None:
    run = session(foreigners.write(lambda m: m.head(m.body(), output="z"), shape=(2, 3, SIZE, SIZE)))
    free = session(foreigners.write(lambda m: m.head(m.body(), output="z"), name="free.onnx"))
    got = run_rows(run, ROWS, ["z"], batch=2)["z"]
    np.testing.assert_allclose(got, run_rows(free, ROWS, ["z"])["z"], atol=1e-6)


def test_what_onnxruntime_cannot_load_names_no_file_of_ours(foreigners: Foreigners) -> None:
    def doubled(m: Maker) -> str:
        x = m.put("Cast", "input", to=onnx.TensorProto.DOUBLE)
        kernel = m.weight(np.ones((3, 3, 3, 3)), dtype=np.float64)
        return m.put("Flatten", m.put("GlobalAveragePool", m.put("Conv", x, kernel)), axis=1)

    with pytest.raises(ModelError, match=r"^onnxruntime cannot load it \(.*float32 where"):
        foreigners.adopt(foreigners.write(doubled), classes=["a", "b", "c"])


def test_a_size_that_does_not_fit_is_one_line(foreigners: Foreigners) -> None:
    run = session(foreigners.write(lambda m: m.head(m.body(), output="z")))
    with pytest.raises(ModelError, match=r"cannot run it on 2 pictures of \[3, 4\]"):
        run_rows(run, ROWS[:2, :, :4, 0], ["z"])
