"""What values of a graph are, as a run on pictures shows them. It needs no inference, so it holds in every domain."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calibrant.errors import FormatError, ModelError
from calibrant.export.checks.parity import session
from calibrant.export.graph.head import Graph
from calibrant.export.graph.saving import save

Arrays = dict[str, NDArray[Any]]
REACH = 120  # nodes that are looked at, back from the outputs
NO_TENSORS = {"ZipMap", "SequenceConstruct", "SplitToSequence", "SequenceInsert"}


def near_the_end(graph: Graph, outputs: Sequence[str]) -> list[str]:
    """Values that the outputs are made of, nearest first; constants are not among them."""
    queue, found = deque(outputs), dict[str, None]()
    while queue and len(found) < REACH:
        name = queue.popleft()
        node = graph.producer.get(name)
        if name in found or node is None or graph.is_constant(name):
            continue
        found[name] = None
        queue.extend(i for i in node.input if i)
    return [name for name in found if graph.producer[name].op_type not in NO_TENSORS]


def run_values(model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]) -> Arrays:
    """The named values on these inputs, without optimisation, which could rename or fuse them away."""
    outputs = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        with tempfile.TemporaryDirectory(prefix="calibrant-adopt-") as folder:
            save(model, Path(folder) / "values.onnx")
            try:
                run = session(Path(folder) / "values.onnx", level="disabled")
            except FormatError as error:  # which names a file that will be gone
                raise ModelError(error.what, fix="export it again, in float32 where it counts in others") from None
            try:
                found = run.run(list(names), dict(feeds))
            except Exception as error:  # onnxruntime's exception types share no public base
                shapes = ", ".join(str(list(a.shape)) for a in feeds.values())
                line = str(error).split("\n", 1)[0][:300]
                raise ModelError(
                    f"onnxruntime cannot run it on {shapes} ({line})", fix="is the size of its pictures another? --size"
                ) from None
    finally:
        del model.graph.output[:]
        model.graph.output.extend(outputs)
    return dict(zip(names, map(np.asarray, found), strict=True))


def run_rows(
    run: Any, rows: NDArray[Any], outputs: Sequence[str], *, batch: int | None = None, name: str | None = None
) -> Arrays:
    """Outputs of a session for any number of rows; of a fixed batch size the last rows are padded.

    name: of the input that takes them, where there are others.
    """
    step, name = batch or 16, name or run.get_inputs()[0].name
    parts: list[list[NDArray[Any]]] = []
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        count = len(some)
        if batch is not None and count < batch:
            some = np.concatenate([some, np.repeat(some[-1:], batch - count, axis=0)])
        try:
            found = run.run(list(outputs), {name: some})
        except Exception as error:  # onnxruntime's exception types share no public base
            line = str(error).split("\n", 1)[0][:300]
            raise ModelError(
                f"onnxruntime cannot run it on {count} pictures of {list(rows.shape[1:])} ({line})",
                fix="is its size another, or its batch free in name only? export it again with a dynamic batch axis",
            ) from None
        parts.append([_rows_of(n, value, len(some))[:count] for n, value in zip(outputs, found, strict=True)])
    return {n: np.concatenate([part[i] for part in parts]) for i, n in enumerate(outputs)}


def _rows_of(name: str, value: Any, rows: int) -> NDArray[Any]:
    if isinstance(value, list) and value and isinstance(value[0], dict):  # what a ZipMap gives
        return np.asarray([list(row.values()) for row in value])
    array = np.asarray(value)
    if array.ndim == 0 or len(array) != rows:
        raise FormatError(f'output "{name}" has {array.shape} for {rows} pictures, expected a row each')
    return array
