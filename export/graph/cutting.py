"""Cuts an ONNX graph down to what some of its values need, and gives values other names."""

from __future__ import annotations

from collections.abc import Mapping

import onnx


def needed_nodes(graph: onnx.GraphProto, values: set[str]) -> list[onnx.NodeProto]:
    """The nodes that the values depend on, in the graph's order."""
    needed, kept = set(values), []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(i for i in node.input if i)
            for attribute in node.attribute:
                if attribute.g.node:
                    needed.update(i for inner in attribute.g.node for i in inner.input if i)
    return kept[::-1]


def cut(model: onnx.ModelProto, values: set[str]) -> None:
    """Leaves in `model` what the values need, with them as its outputs."""
    graph = model.graph
    nodes = needed_nodes(graph, values)
    used = {i for node in nodes for i in node.input} | {
        i for node in nodes for a in node.attribute for inner in a.g.node for i in inner.input
    }
    made = {out for node in nodes for out in node.output}
    known = {v.name: v for v in [*graph.value_info, *graph.output]}
    outputs = [known.get(name) or onnx.ValueInfoProto(name=name) for name in sorted(values)]
    outputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in outputs]
    initializers = [t for t in graph.initializer if t.name in used]
    infos = [v for v in graph.value_info if v.name in made and v.name not in values]
    for field, items in (
        ("node", nodes), ("initializer", initializers), ("value_info", infos), ("output", outputs),
    ):  # fmt: skip
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del getattr(graph, field)[:]
        getattr(graph, field).extend(copies)


def rename(model: onnx.ModelProto, old: str, new: str) -> None:
    """Gives a value of the graph another name."""
    rename_all(model.graph, {old: new})


def rename_all(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Gives values other names, inside of branches and loops too."""
    for node in graph.node:
        for values in (node.input, node.output):
            for i, name in enumerate(values):
                if name in names:
                    values[i] = names[name]
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                rename_all(inner, names)
    for item in [*graph.value_info, *graph.output, *graph.input, *graph.initializer]:
        item.name = names.get(item.name, item.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = names.get(annotation.tensor_name, annotation.tensor_name)
