"""Where does a graph first say something else than the network? Names the node and the module of the network.

Values in the exported graph keep the names of the nodes of torch's own graph, so the two can be run side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from calibrant.export.checks.parity import session
from calibrant.export.graph.trace import SCOPES, quiet, to_program

LIMIT = 1e-3  # relative to the largest value of the tensor


@dataclass(frozen=True)
class Difference:
    """The first node, in the graph's order, whose value differs; or that only an optimised session differs."""

    operator: str
    node: str
    module: str
    error: float  # relative to the largest value
    compared: int  # values of the graph that could be compared

    def __str__(self) -> str:
        place = f" in module {self.module}" if self.module else ""
        return (
            f"the first of {self.compared} compared values to differ is made by {self.operator} ({self.node}){place}, "
            f"by {self.error:.1g} of its size"
        )


def first_difference(path: str | Path, body: torch.nn.Module, example: torch.Tensor) -> Difference | None:
    """Compares every value that both graphs know, with optimisation off; None where all agree."""
    expected = torch_values(body, example)
    model = onnx.load(str(path))
    shared = [out for node in model.graph.node for out in node.output if out in expected]
    known = {o.name for o in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shared if name not in known)
    run = session(model.SerializeToString(), level="disabled")
    found = dict(zip(shared, run.run(shared, {"images": example.numpy()}), strict=True))
    for node in model.graph.node:
        for out in node.output:
            if out not in found or found[out].shape != expected[out].shape:
                continue
            size = max(float(np.abs(expected[out]).max(initial=0.0)), 1e-6)
            error = float(np.abs(found[out] - expected[out]).max(initial=0.0)) / size
            if not error <= LIMIT:
                return Difference(node.op_type, node.name, module_of(node), error, len(shared))
    return None


def torch_values(body: torch.nn.Module, example: torch.Tensor) -> dict[str, NDArray[Any]]:
    """Every float tensor that torch's exported graph makes, by name."""
    program = to_program(body, example)
    values: dict[str, NDArray[Any]] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and result.is_floating_point() and n.op == "call_function":
                values[n.name] = result.detach().numpy()
            return result

    with torch.inference_mode(), quiet():
        flat = program._graph_module_flat_inputs((example,), {})
        Recorder(program.graph_module).run(*flat)
    return values


def module_of(node: onnx.NodeProto) -> str:
    """Path of the module that made the node, as the network names it."""
    scopes = next((p.value for p in node.metadata_props if p.key == SCOPES), "")
    path = [s.strip(" '\"") for s in scopes.strip("[]").split(",") if s.strip(" '\"")]
    inner = path[-2] if len(path) > 1 else ""
    while inner == "network" or inner.startswith("network."):
        inner = inner.removeprefix("network").removeprefix(".")
    return inner
