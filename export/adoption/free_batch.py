"""A graph of a fixed batch size, freed where that holds: proved by runs of one and of three rows."""

from __future__ import annotations

import numpy as np
import onnx

from calibrant.errors import ModelError
from calibrant.export.adoption.reading.input_side import ForeignInput
from calibrant.export.adoption.reading.values import run_values
from calibrant.export.graph.head import Graph


def free_batch(
    model: onnx.ModelProto, kept: str, batch: int | None, taken: ForeignInput, size: tuple[int, int]
) -> int | str:
    """Changes `model` (its input is ours already) to any number of rows, or leaves it: "N", or its batch size.

    Networks that expand a constant over the batch (class tokens, windows) stay fixed; nothing is repaired there but
    shapes that begin with the batch size.
    """
    if batch is None:
        if _runs_freely(model, kept, model, 4, taken, size):
            return "N"
        raise ModelError(
            "says that its batch size is free, but runs at one only, or answers otherwise in other company",
            fix="export it with a dynamic batch axis, and in evaluation mode",
        )
    for reshapes in (False, True):
        freed = onnx.ModelProto()
        freed.CopyFrom(model)
        del freed.graph.value_info[:]
        for value in [*freed.graph.input, *freed.graph.output]:
            dims = value.type.tensor_type.shape.dim
            if dims:
                dims[0].Clear()
                dims[0].dim_param = "N"
        if reshapes:
            _open_reshapes(freed, batch)
        if _runs_freely(freed, kept, model, batch, taken, size):
            model.CopyFrom(freed)
            return "N"
    return batch


def _runs_freely(
    freed: onnx.ModelProto, kept: str, fixed: onnx.ModelProto, batch: int, taken: ForeignInput, size: tuple[int, int]
) -> bool:
    """One row and three give what they give in a batch of the graph's own size."""
    count = max(batch, 3)
    pixels = taken.random(count, size)
    whole = -(-count // batch) * batch
    padded = np.concatenate([pixels, np.repeat(pixels[-1:], whole - count, axis=0)])
    rows = [run_values(fixed, [kept], {taken.ours: padded[i : i + batch]})[kept] for i in range(0, whole, batch)]
    expected = np.concatenate(rows)
    if len(expected) != whole:
        return False
    for some in (1, 3):
        try:
            got = run_values(freed, [kept], {taken.ours: pixels[:some]})[kept]
        except Exception:  # onnxruntime's exception types share no public base
            return False
        if got.shape != (some, *expected.shape[1:]):
            return False
        gap = np.abs(got.astype(np.float64) - expected[:some]).max()
        if not gap <= 1e-3 * max(1.0, float(np.abs(expected).max())):
            return False
    return True


def _open_reshapes(model: onnx.ModelProto, batch: int) -> None:
    """Reshape targets that begin with the batch size begin with "whatever is left"."""
    graph = Graph(model)
    for node in model.graph.node:
        if node.op_type != "Reshape" or not graph.is_constant(node.input[1]):
            continue
        target = np.array(graph.constant(node.input[1]), np.int64)
        if len(target) and target[0] == batch and -1 not in target:
            target[0] = -1
            name = f"{node.input[1]}_any_batch"
            if name not in {t.name for t in model.graph.initializer}:
                model.graph.initializer.append(onnx.numpy_helper.from_array(target, name))
            node.input[1] = name
