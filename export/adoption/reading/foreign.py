"""A foreign ONNX file, read and brought into one form: no weights among its inputs, no names that are ours."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.inliner import inline_local_functions

from calibrant.artifacts.model_card import KEY
from calibrant.artifacts.onnx_file import KNOBS, OWN, OnnxFile
from calibrant.errors import FormatError, ModelError
from calibrant.export.adoption.reading.table_classifier import TableClassifier, open_up
from calibrant.export.graph.cutting import rename_all
from calibrant.export.graph.tail import OUTPUTS

IR_VERSION = 8  # from 4 on weights need not be inputs too; 8 is what every deployed file has
RESERVED = {"images", "rows", "raw_logits", *OUTPUTS, *KNOBS}
_QUANTIZED = (
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "ConvInteger", "MatMulInteger", "QGemm", "QAttention",
    "DynamicQuantizeMatMul",
)  # fmt: skip
HALF = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_SCALES_OF_THE_BATCH = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")


@dataclass(frozen=True)
class Foreign:
    """The graph in our form, and what the file was before."""

    path: Path
    model: onnx.ModelProto
    outputs: dict[str, str]  # name of each output in `model`: its name in the file
    precision: str  # float32, float16 or int8: how exactly a file can be followed
    opset: int
    producer: str
    sha256: str
    table: TableClassifier = TableClassifier()  # what operators of tabular classifiers say
    named: tuple[str, ...] | None = None  # class names that stand beside the graph

    @property
    def scales_by_batch(self) -> bool:
        """Its int8 scales are taken from all rows that come together, so an answer depends on its neighbours."""
        return any(node.op_type in _SCALES_OF_THE_BATCH for node in self.model.graph.node)

    @classmethod
    def load(cls, path: str | Path) -> Foreign:
        path = Path(path)
        file = OnnxFile.open(path)
        _refuse_own(file)
        missing = next((data for data in file.external_files() if not data.is_file()), None)
        if missing is not None:
            raise FormatError(f"its weights file {missing.name} is missing", where=path, fix="copy both files")
        try:
            model = onnx.load(str(path))
        except ValueError as error:  # of weights beside the file: the rest was read above
            raise FormatError(f"its weights file is damaged ({error})", where=path, fix="copy both files") from None
        if model.functions:
            model = inline_local_functions(model)
        graph = model.graph
        if not graph.output:
            raise ModelError("has no output", where=path)
        weights = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        kept = [i for i in graph.input if i.name not in weights]
        del graph.input[:]
        graph.input.extend(kept)
        model.ir_version = max(model.ir_version, IR_VERSION)
        before = [o.name for o in graph.output]
        table = open_up(model)
        _free_names(graph)
        outputs = dict(zip((o.name for o in graph.output), before, strict=True))
        opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        producer, named = file.producer or "unknown", _names_beside(file.metadata.get("names", ""))
        return cls(path, model, outputs, precision_of(model), opset, producer, sha256_of(path), table, named)


def _refuse_own(file: OnnxFile) -> None:
    if KEY in file.metadata:
        raise FormatError(
            "is a file of Calibrant already",
            where=file.path,
            fix="edit it with calibrant recalibrate, or after a change by another tool use calibrant verify --reseal",
        )


def _names_beside(text: str) -> tuple[str, ...] | None:
    """{0: 'ash', 1: 'elm'}, as Ultralytics writes it; None where it is anything else."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(found, dict) or list(found) != list(range(len(found))):
        return None
    return tuple(map(str, found.values())) or None


def _free_names(graph: onnx.GraphProto) -> None:
    """Values that bear a name of ours get another; so do nodes under our prefix, which an edit would take out."""
    known = set(_values(graph))
    taken = {name for name in known if name in RESERVED or name.startswith(OWN)}
    fresh: dict[str, str] = {}
    for name in sorted(taken):
        new = f"foreign_{name.replace('/', '_')}"
        while new in known:
            new += "_"
        known.add(new)
        fresh[name] = new
    rename_all(graph, fresh)
    for node in graph.node:
        if node.name.startswith(OWN):
            node.name = f"foreign_{node.name}"


def _values(graph: onnx.GraphProto) -> Iterator[str]:
    for item in [*graph.input, *graph.initializer]:
        yield item.name
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _values(inner)


def precision_of(model: onnx.ModelProto) -> str:
    if any(node.op_type.startswith(_QUANTIZED) for node in model.graph.node):
        return "int8"
    floats = [t for t in model.graph.initializer if t.data_type in (onnx.TensorProto.FLOAT, *HALF)]
    return "float16" if any(t.data_type in HALF for t in floats) else "float32"


def sha256_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
