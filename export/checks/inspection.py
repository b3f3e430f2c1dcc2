"""What can be read off any ONNX file, ours or not, and whether ours is still what was exported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.artifacts.model_card import KEY, ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_wire import DTYPE_NAMES, Value
from calibrant.errors import FormatError


@dataclass(frozen=True)
class Inspection:
    file: OnnxFile
    card: ModelCard | None
    notes: tuple[str, ...]  # what is wrong, or that nothing is
    intact: bool
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        file = self.file
        return {
            "file": str(file.path), "bytes": self.bytes, "producer": file.producer, "ir_version": file.ir_version,
            "opsets": {k or "ai.onnx": v for k, v in file.opsets.items()},
            "inputs": [_value(v) for v in file.inputs], "outputs": [_value(v) for v in file.outputs],
            "nodes": len(file.nodes), "operators": dict(Counter(n.op for n in file.nodes).most_common()),
            "initializers": len(file.initializers), "intact": self.intact, "notes": list(self.notes),
            "card": None if self.card is None else self.card.to_dict(),
        }  # fmt: skip


def describe(path: str | Path) -> Inspection:
    """Reads the file; a missing block is described, a tampered or newer one is an error."""
    path = Path(path)
    file = OnnxFile.open(path)
    size = path.stat().st_size + sum(f.stat().st_size for f in file.external_files() if f.is_file())
    if KEY not in file.metadata and file.producer != "calibrant":
        return Inspection(file, None, ("no calibrant block",), False, size)
    card = file.card()
    if changed := file.changed(card):
        notes = (f"CHANGED since export: {' and '.join(changed)} do not match the recorded hash",)
    else:
        notes = (f"intact: {len(file.nodes)} nodes, {size / 1e6:.1f} MB, hashes match",)
    return Inspection(file, card, notes, not changed, size)


def check_intact(file: OnnxFile, card: ModelCard) -> None:
    """Refuses a file whose graph is not the one that its card was written for."""
    beside = bool(file.external_files())  # weights outside of the file are not part of the graph's bytes
    if card.hashes.get("graph") not in (None, file.hash_graph()) or (
        beside and card.hashes.get("weights") not in (None, file.hash_weights())
    ):
        raise FormatError(
            "its weights or graph do not match the hash recorded at export: the file was changed or damaged",
            where=file.path,
            fix="export again; if a tool changed it on purpose, calibrant verify FILE --reseal --against BEFORE.onnx",
        )


def foreign_lines(found: Inspection) -> list[str]:
    """What `inspect` says about an ONNX file that is not ours."""
    file = found.file
    counts = ", ".join(f"{n} {op}" for op, n in Counter(n.op for n in file.nodes).most_common(6))
    names = ", ".join(sorted(file.metadata)) or "none"
    opsets = ", ".join(f"{k or 'ai.onnx'} {v}" for k, v in file.opsets.items())
    return [
        f"{file.path}: an ONNX file without a calibrant block",
        f"  producer  {file.producer or 'unknown'}; IR {file.ir_version}, opset {opsets}; {found.bytes / 1e6:.1f} MB",
        *(f"  input     {_text(v)}" for v in file.inputs),
        *(f"  output    {_text(v)}" for v in file.outputs),
        f"  graph     {len(file.nodes)} nodes ({counts}), {len(file.initializers)} initializers",
        f"  metadata  {names}",
        "  To give it class names, calibration and a card: calibrant adopt FILE --classes names.txt --out MODEL.onnx,",
        "  or export its run with calibrant export.",
    ]


def _value(value: Value) -> dict[str, Any]:
    return {"name": value.name, "dtype": DTYPE_NAMES.get(value.dtype, str(value.dtype)), "shape": list(value.dims)}


def _text(value: Value) -> str:
    return f"{value.name} {DTYPE_NAMES.get(value.dtype, value.dtype)} [{', '.join(map(str, value.dims))}]"
