"""Reads an ONNX file as bytes on disk, without the onnx package and without loading it into memory.

`OnnxFile` walks the file's fields and keeps only where each thing lies.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import onnx_wire as wire
from calibrant.artifacts.model_card import KEY, ModelCard
from calibrant.errors import DataError, FormatError

OWN = "calibrant/"  # prefix of the names of every node, value and initializer that editing may replace
KNOBS = ("temperature", "adjust_strength", "log_prior_ratio")  # inputs whose defaults editing may replace too
_CHUNK = 1 << 20
_LFS = b"version https://git-lfs"
Span = tuple[int, int]


@dataclass(frozen=True)
class Tensor:
    """An initializer: what it is and where its bytes lie in the file."""

    name: str
    dtype: int
    dims: tuple[int, ...]
    span: Span  # of the TensorProto's payload
    data: tuple[Span, ...]  # raw_data or the typed fields
    raw: bool
    external: tuple[tuple[str, str], ...] = ()  # location, offset, length of data outside the file


@dataclass(frozen=True)
class NodeInfo:
    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class OnnxFile:
    """What an ONNX file holds. Made by `OnnxFile.open`; arrays and hashes are read from the file on demand."""

    path: Path
    ir_version: int
    producer: str
    description: str
    opsets: Mapping[str, int]
    metadata: Mapping[str, str]
    nodes: tuple[NodeInfo, ...]
    initializers: Mapping[str, Tensor]
    inputs: tuple[wire.Value, ...]
    outputs: tuple[wire.Value, ...]
    graph: Span

    @classmethod
    def open(cls, path: str | Path) -> OnnxFile:
        path = Path(path)
        with mapped(path) as buffer:
            try:
                return _parse(path, buffer)
            except wire.Damaged as error:
                if buffer[: len(_LFS)] == _LFS:
                    raise FormatError("is a pointer of Git LFS", where=path, fix="get the file: git lfs pull") from None
                raise FormatError(
                    f"not an ONNX file, or a damaged one ({error})", where=path, fix="export or copy it again"
                ) from None

    def array(self, name: str) -> NDArray[np.generic]:
        """The values of an initializer that is stored as raw bytes."""
        tensor = self.initializers[name]
        if not tensor.raw or tensor.external or tensor.dtype not in wire.DTYPES:
            raise FormatError(f"initializer {name} is not stored as plain bytes", where=self.path)
        begin, end = tensor.data[0]
        with open(self.path, "rb") as stream:
            stream.seek(begin)
            values = np.frombuffer(stream.read(end - begin), wire.DTYPES[tensor.dtype])
        return values.reshape(tensor.dims)

    def card(self, *, check_hash: bool = True) -> ModelCard:
        """The calibrant block; an error that says what the file is where there is none."""
        block = self.metadata.get(KEY)
        if block is None and self.producer == "calibrant":
            raise FormatError(
                "was written by Calibrant but its metadata block is missing: the file was cut or rewritten",
                where=self.path,
                fix="export or copy it again",
            )
        if block is None:
            by = f' (it was written by "{self.producer}")' if self.producer else ""
            raise FormatError(
                f"an ONNX file without a calibrant block{by}", where=self.path, fix="take it over with calibrant adopt"
            )
        return ModelCard.from_json(block, where=self.path, check_hash=check_hash)

    def hash_weights(self) -> str:
        """sha256 over the initializers in order of name, without those that editing may replace.

        Each goes in as name|dtype|dims| and its bytes; unchanged by every edit of the tail or of the metadata.
        """
        digest = hashlib.sha256()
        with open(self.path, "rb") as stream:
            for name in sorted(self.initializers):
                tensor = self.initializers[name]
                if name.startswith(OWN) or name in KNOBS:
                    continue
                digest.update(f"{name}|{tensor.dtype}|{','.join(map(str, tensor.dims))}|".encode())
                for span in tensor.data:
                    for chunk in chunks(stream, span):
                        digest.update(chunk)
                if tensor.external:
                    self._hash_external(tensor, digest.update)
        return digest.hexdigest()

    def _hash_external(self, tensor: Tensor, update: Callable[[bytes], None]) -> None:
        where = dict(tensor.external)
        data = self.path.parent / self._location(tensor)
        if not data.is_file():
            raise FormatError(f"its weights file {data.name} is missing", where=self.path, fix="copy both files")
        try:
            begin = int(where.get("offset", 0))
            length = int(where.get("length", data.stat().st_size - begin))
        except ValueError:
            raise FormatError(f"initializer {tensor.name} lies at no number of bytes", where=self.path) from None
        with open(data, "rb") as stream:
            for chunk in chunks(stream, (begin, begin + length)):
                update(chunk)

    def _location(self, tensor: Tensor) -> str:
        """Path of a weights file from the folder of this one. A foreign file could name any file of the machine."""
        name = dict(tensor.external).get("location", "")
        if not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise FormatError(f'its weights lie at "{name}", which is not beside it', where=self.path)
        return name

    def hash_graph(self) -> str:
        """sha256 of the graph's bytes: changes with every node and weight, not with the metadata."""
        digest = hashlib.sha256()
        with open(self.path, "rb") as stream:
            for chunk in chunks(stream, self.graph):
                digest.update(chunk)
        return digest.hexdigest()

    def hashes(self) -> dict[str, str]:
        return {"weights": self.hash_weights(), "graph": self.hash_graph()}

    def changed(self, card: ModelCard) -> list[str]:
        """What is not as it was exported, "weights" or "graph", as far as the card says how that was."""
        return [kind for kind, value in self.hashes().items() if card.hashes.get(kind) not in (None, value)]

    def external_files(self) -> tuple[Path, ...]:
        return tuple(self.path.parent / name for name in self.external_names())

    def external_names(self) -> tuple[str, ...]:
        return tuple(sorted({self._location(t) for t in self.initializers.values() if t.external}))


def _parse(path: Path, buffer: memoryview) -> OnnxFile:
    ir_version, producer, description, graph = 0, "", "", None
    opsets: dict[str, int] = {}
    metadata: dict[str, str] = {}
    for f in wire.fields(buffer, 0, len(buffer)):
        if f.number == 1 and f.wire == 0:
            ir_version = f.value
        elif f.number == 2:
            producer = wire.text(buffer, f)
        elif f.number == 6:
            description = wire.text(buffer, f)
        elif f.number == 7:
            graph = f
        elif f.number == 8:
            parts = {p.number: p for p in wire.fields(buffer, f.start, f.end)}
            domain = wire.text(buffer, parts[1]) if 1 in parts else ""
            opsets[domain] = parts[2].value if 2 in parts else 0
        elif f.number == 14:
            key, value = wire.pairs(buffer, f)
            metadata[key] = value
    if graph is None or not ir_version:
        raise wire.Damaged("it has no graph")
    nodes, tensors, inputs, outputs = [], dict[str, Tensor](), [], []
    for f in wire.fields(buffer, graph.start, graph.end):
        if f.number == 1:
            nodes.append(read_node(buffer, f))
        elif f.number == 5:
            tensor = read_tensor(buffer, f)
            tensors[tensor.name] = tensor
        elif f.number == 11:
            inputs.append(wire.decode_value(buffer, f.start, f.end))
        elif f.number == 12:
            outputs.append(wire.decode_value(buffer, f.start, f.end))
    return OnnxFile(
        path,
        ir_version,
        producer,
        description,
        opsets,
        metadata,
        tuple(nodes),
        tensors,
        tuple(inputs),
        tuple(outputs),
        (graph.start, graph.end),
    )


def read_node(buffer: memoryview, f: wire.Field) -> NodeInfo:
    inputs, outputs, name, op = [], [], "", ""
    for part in wire.fields(buffer, f.start, f.end):
        if part.number == 1:
            inputs.append(wire.text(buffer, part))
        elif part.number == 2:
            outputs.append(wire.text(buffer, part))
        elif part.number == 3:
            name = wire.text(buffer, part)
        elif part.number == 4:
            op = wire.text(buffer, part)
    return NodeInfo(op, name, tuple(inputs), tuple(outputs))


def read_tensor(buffer: memoryview, f: wire.Field) -> Tensor:
    name, dtype, dims, data, raw, external = "", 0, list[int](), list[Span](), False, list[tuple[str, str]]()
    for part in wire.fields(buffer, f.start, f.end):
        if part.number == 1 and part.wire == 0:
            dims.append(part.value)
        elif part.number == 1:  # packed
            position = part.start
            while position < part.end:
                value, position = wire.varint(buffer, position, part.end)
                dims.append(value)
        elif part.number == 2:
            dtype = part.value
        elif part.number == 8:
            name = wire.text(buffer, part)
        elif part.number in (4, 5, 6, 7, 9, 10, 11):
            data.append((part.start, part.end))
            raw = part.number == 9
        elif part.number == 13:
            external.append(wire.pairs(buffer, part))
    if raw and not external and dtype in wire.DTYPES:
        begin, end = data[-1]
        if end - begin != int(np.prod(dims, dtype=np.int64)) * wire.DTYPES[dtype].itemsize:
            raise wire.Damaged(f"initializer {name} has the wrong number of bytes")
    return Tensor(name, dtype, tuple(dims), (f.start, f.end), tuple(data), raw, tuple(external))


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below; only opening it may say that there is no such file
    except FileNotFoundError:
        raise DataError("no such file", where=path) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=path) from None
    with stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise FormatError("the file is empty", where=path, fix="export or copy it again")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield view


def chunks(stream: BinaryIO, span: Span) -> Iterator[bytes]:
    position, end = span
    stream.seek(position)
    while position < end:
        chunk = stream.read(min(_CHUNK, end - position))
        if not chunk:
            raise FormatError("the file became shorter while it was read", where=getattr(stream, "name", None))
        position += len(chunk)
        yield chunk
