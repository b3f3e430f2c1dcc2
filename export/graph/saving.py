"""Writes a graph as one file, with its weights beside it where protobuf could not hold them."""

from __future__ import annotations

from pathlib import Path

import onnx

LARGEST = (1 << 31) - (1 << 24)  # protobuf refuses messages of 2 GB; some room for the metadata


def too_large(model: onnx.ModelProto) -> bool:
    return sum(len(t.raw_data) for t in model.graph.initializer) > LARGEST


def save(model: onnx.ModelProto, path: Path) -> None:
    if not too_large(model):
        path.write_bytes(model.SerializeToString())
        return
    onnx.save_model(model, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
