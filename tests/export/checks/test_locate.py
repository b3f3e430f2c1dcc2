from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import CheckFailed
from calibrant.export import to_onnx
from calibrant.export.checks.locate import first_difference
from calibrant.export.graph.wrapper import Body

from ..conftest import PREPROCESSING, pixels

Export = Callable[..., tuple[Path, ModelCard]]


def with_changed_weight(path: Path, name: str, target: Path) -> Path:
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name == name)
    values = numpy_helper.to_array(tensor).copy()
    values.flat[0] += 0.5
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    onnx.save(model, target)
    return target


@pytest.mark.parametrize("module", ["stem", "body"])
def test_a_changed_weight_is_found_in_its_module(deployed: Path, tiny: nn.Module, tmp_path: Path, module: str) -> None:
    broken = with_changed_weight(deployed, f"network.{module}.weight", tmp_path / "b.onnx")
    body = Body(tiny, PREPROCESSING).eval()
    found = first_difference(broken, body, torch.from_numpy(pixels(2)))
    assert found is not None
    assert (found.operator, found.module) == ("Conv", module)
    assert found.compared >= 5
    assert f"in module {module}" in str(found)
    assert first_difference(deployed, body, torch.from_numpy(pixels(2))) is None


def test_export_names_the_module_where_graph_and_network_part(
    exported: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = to_onnx.save

    def spoiled(graph: onnx.ModelProto, path: Path) -> None:
        real(graph, path)
        with_changed_weight(path, "network.body.weight", path)

    monkeypatch.setattr(to_onnx, "save", spoiled)
    with pytest.raises(CheckFailed, match=r"differ by .* made by Conv .* in module body"):
        exported()
    assert (tmp_path / "model.failed.onnx").exists()
