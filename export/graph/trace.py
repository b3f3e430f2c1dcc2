"""From a torch module to an ONNX graph, by torch.export, with the errors that people meet named by module."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import torch
from torch import nn

from calibrant.errors import ModelError
from calibrant.export.graph.wrapper import Body
from calibrant.images.preprocessing import Preprocessing

BATCH = "N"
SCOPES = "pkg.torch.onnx.name_scopes"
log = logging.getLogger(__name__)


def trace(body: Body, preprocessing: Preprocessing, *, opset: int, outputs: list[str]) -> onnx.ModelProto:
    """An ONNX model with input `images` (or `rows`), the named outputs, and a free batch size.

    The example has two images: a batch of one would be burnt into the graph.
    """
    example = body.example(preprocessing, 2)
    name = "rows" if body.input == "rows" else "images"
    exported = _export(capture(body, example), opset=opset, outputs=outputs, input=name)
    model: onnx.ModelProto = exported.model_proto
    _name_batch(model)
    _strip(model)
    return model


def to_program(body: Body | nn.Module, example: torch.Tensor) -> torch.export.ExportedProgram:
    """The decomposed program whose node names the values of the ONNX graph bear."""
    program: torch.export.ExportedProgram = _export(capture(body, example)).exported_program
    return program


def _export(
    program: torch.export.ExportedProgram, *, opset: int = 18, outputs: list[str] | None = None, input: str = "images"
) -> Any:
    with quiet():
        exported = torch.onnx.export(
            program,
            (),
            dynamo=True,
            opset_version=opset,
            input_names=[input],
            output_names=outputs,
            optimize=True,
            verbose=False,
        )
    if exported is None:
        raise ModelError("torch.onnx.export gave nothing")
    return exported


def capture(body: nn.Module, example: torch.Tensor) -> torch.export.ExportedProgram:
    """torch.export with a free batch; a failure says in which module it happened."""
    inside: list[str] = []
    try:
        with quiet(), _tracking(body, inside), torch.no_grad():
            return torch.export.export(body, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
    except Exception as error:  # torch.export raises dozens of kinds, all meaning "this network cannot be a graph"
        place = inside[-1] if inside else None
        name = place.removeprefix("network.") if place else "the network"
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"the network cannot be written as one graph: {_reason(error)} in module {name} ({first[:200]})",
            fix="a graph has no Python branches or loops on the data; rewrite that module with torch.where or a mask",
        ) from error


def _reason(error: Exception) -> str:
    text = f"{type(error).__name__} {error}"
    if "DataDependent" in text or "data-dependent" in text or "unbacked" in text or "item()" in text:
        return "it depends on the data"
    if "specialized" in text or "ConstraintViolation" in text or "Constraints violated" in text:
        return "the batch size is fixed in it"
    return "it cannot be traced"


@contextlib.contextmanager
def _tracking(module: nn.Module, inside: list[str]) -> Iterator[None]:
    """Keeps the path of the module that is running in `inside`; an exception leaves it there."""
    names = {id(m): name for name, m in module.named_modules() if name}

    def enter(m: nn.Module, _: Any) -> None:
        inside.append(names.get(id(m), ""))

    def leave(m: nn.Module, _: Any, __: Any) -> None:
        inside.pop()

    handles = [
        h
        for m in module.modules()
        if id(m) in names
        for h in (
            m.register_forward_pre_hook(enter),
            m.register_forward_hook(leave),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """torch's exporter warns about its own deprecations and logs its passes; neither is the user's concern."""
    loggers = [logging.getLogger(n) for n in ("torch.onnx", "onnxscript", "torch.export", "onnx_ir")]
    levels = [item.level for item in loggers]
    try:
        for item in loggers:
            item.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for item, level in zip(loggers, levels, strict=True):
            item.setLevel(level)


def _name_batch(model: onnx.ModelProto) -> None:
    """Calls the free dimension N everywhere; torch names it after its own counter."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    if not dims[0].HasField("dim_param"):
        raise ModelError(
            f"the batch size was fixed at {dims[0].dim_value} while tracing",
            fix="look for shape[0] used as a Python number in the network",
        )
    old = dims[0].dim_param
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.dim_param = dim.dim_param.replace(old, BATCH)


def _strip(model: onnx.ModelProto) -> None:
    """Takes out the source paths and traces of the machine that exported; module paths stay, for `verify`."""
    graph = model.graph
    for node in graph.node:
        kept = [p for p in node.metadata_props if p.key == SCOPES]
        scopes = kept[0].value if kept else None
        del node.metadata_props[:]
        if scopes is not None:
            node.metadata_props.add(key=SCOPES, value=scopes)
        node.doc_string = ""
    for item in [*graph.input, *graph.output, *graph.value_info, *graph.initializer, graph, model]:
        del item.metadata_props[:]
        item.doc_string = ""
