"""The predictions file: what a model said about each sample, on its way from training or serving to calibration.

Parquet with the columns `id` (string), `label` (int64, null where unknown), `logits` (fixed-size list of float32),
and where wanted `features` (likewise) and `split` (string). Where images have labels that are no classes of the model,
`label` is null for them and `label_name` (string) says what every image was labelled with. Class names, the training
prior and the model's identity stand as JSON in the schema metadata under "calibrant". A folder of such files is one
table in shards.

`logits` are the model's own, with its class temperatures (VACE) applied and nothing else: softmax(logits) is what the
uncalibrated model claims.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import replacing
from calibrant.errors import DataError, FormatError

FORMAT_VERSION = 1
_KEY = b"calibrant"
_ROW_GROUP_BYTES = 32 << 20
PROBABILITY_FLOOR = 1e-12  # of probabilities that are read as logits: no label is impossible
_UNREAD = ("weights", "weight", "sample_weight", "sample_weights", "group", "groups")


@dataclass(frozen=True)
class Source:
    """What a predictions file says about the model and the classes; equal over all its shards."""

    class_names: tuple[str, ...]
    train_prior: tuple[float, ...] | None = None  # share of each class in the training set
    absorbed: float = 0.0  # strength of the prior correction that the training loss already made
    class_temperatures: tuple[float, ...] | None = None  # already applied to the logits
    model: Mapping[str, Any] = field(default_factory=dict)  # name, hash, run ...

    def to_json(self) -> str:
        block = {
            "kind": "predictions", "format_version": FORMAT_VERSION, "class_names": list(self.class_names),
            "train_prior": list(self.train_prior) if self.train_prior is not None else None,
            "absorbed": self.absorbed,
            "class_temperatures": list(self.class_temperatures) if self.class_temperatures is not None else None,
            "model": dict(self.model),
        }  # fmt: skip
        return json.dumps(block, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str | Path) -> Source:
        try:
            block = json.loads(text)
            version = int(block["format_version"])
            if version > FORMAT_VERSION:
                raise FormatError(
                    f"predictions format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
                    where=where,
                    fix="update calibrant",
                )
            prior, taus = block.get("train_prior"), block.get("class_temperatures")
            source = cls(
                tuple(map(str, block["class_names"])),
                tuple(map(float, prior)) if prior is not None else None,
                float(block.get("absorbed", 0.0)),
                tuple(map(float, taus)) if taus is not None else None,
                dict(block.get("model", {})),
            )
        except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
            raise FormatError(f"damaged predictions metadata ({error})", where=where) from None
        for name, values in (("train_prior", source.train_prior), ("class_temperatures", source.class_temperatures)):
            if values is not None and len(values) != len(source.class_names):
                raise FormatError(f"{name} has {len(values)} values for {len(source.class_names)} classes", where=where)
        return source


@dataclass(frozen=True)
class Predictions:
    """A predictions file, or a part of one, in memory. A label of -1 is unknown."""

    ids: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,)
    logits: NDArray[np.float32]  # (N, C)
    source: Source
    features: NDArray[np.float32] | None = None  # (N, D)
    split: tuple[str, ...] | None = None
    label_names: tuple[str | None, ...] | None = None  # of the data, where some are no classes of the model

    def __post_init__(self) -> None:
        n, c = self.logits.shape
        if len(self.ids) != n or self.labels.shape != (n,):
            raise ValueError(f"{len(self.ids)} ids and {self.labels.shape[0]} labels for {n} rows of logits")
        if c != len(self.source.class_names):
            raise ValueError(f"{c} logits a row but {len(self.source.class_names)} class names")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.source.class_names

    def labelled(self) -> Predictions:
        """The rows whose label is known."""
        keep = np.flatnonzero(self.labels >= 0)
        if len(keep) == len(self):
            return self
        return self.rows(keep)

    def rows(self, index: NDArray[np.intp]) -> Predictions:
        return Predictions(
            tuple(self.ids[i] for i in index),
            self.labels[index],
            self.logits[index],
            self.source,
            None if self.features is None else self.features[index],
            None if self.split is None else tuple(self.split[i] for i in index),
            None if self.label_names is None else tuple(self.label_names[i] for i in index),
        )

    def write(self, path: str | Path) -> None:
        with PredictionsWriter(path, self.source) as writer:
            writer.append(
                self.ids,
                self.labels,
                self.logits,
                features=self.features,
                split=self.split,
                label_names=self.label_names,
            )


class PredictionsWriter:
    """Appends batches to a predictions file, which appears under its name only when the `with` block ends well."""

    def __init__(self, path: str | Path, source: Source) -> None:
        self.path, self.source = Path(path), source
        self._writer: Any = None

    def __enter__(self) -> PredictionsWriter:
        self._replacing = replacing(self.path)
        self._temporary = self._replacing.__enter__()
        return self

    def append(
        self,
        ids: Sequence[str],
        labels: NDArray[np.integer[Any]] | None,
        logits: NDArray[np.floating[Any]],
        *,
        features: NDArray[np.floating[Any]] | None = None,
        split: Sequence[str] | str | None = None,
        label_names: Sequence[str | None] | None = None,
    ) -> None:
        """Adds rows; labels of -1 (or labels=None) are written as null."""
        import pyarrow as pa

        n = len(ids)
        known = np.full(n, -1, np.int64) if labels is None else np.asarray(labels, np.int64)
        columns = {
            "id": pa.array(ids, pa.string()),
            "label": pa.array(known, pa.int64(), mask=known < 0),
            "logits": _fixed_list(logits),
        }
        if features is not None:
            columns["features"] = _fixed_list(features)
        if split is not None:
            columns["split"] = pa.array([split] * n if isinstance(split, str) else split, pa.string())
        if label_names is not None:
            columns["label_name"] = pa.array(label_names, pa.string())
        self._write(pa.table(columns).replace_schema_metadata({_KEY: self.source.to_json()}))

    def _write(self, batch: Any) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            # Logits are noise to a compressor: leaving them raw reads several times faster.
            numbers = ("logits", "features")
            compression = {name: "none" if name in numbers else "zstd" for name in batch.schema.names}
            self._writer = pq.ParquetWriter(self._temporary, batch.schema, compression=compression)
        row_bytes = 4 * len(self.source.class_names) + 32
        self._writer.write_table(batch, row_group_size=max(1024, _ROW_GROUP_BYTES // row_bytes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None and kind is None:
            self.append([], None, np.zeros((0, len(self.source.class_names)), np.float32))
        if self._writer is not None:
            self._writer.close()
        self._replacing.__exit__(kind, error, trace)


@dataclass(frozen=True)
class PredictionsFile:
    """A predictions file or folder of shards on disk; `batches` reads it in bounded memory.

    Also reads an .npz with `logits` (or `probabilities`) and, where there are, `labels`, `ids`, `classes`: what people
    bring along. `probabilities`: what stands as logits are probabilities, and their logarithms are read; without it
    rows that are not negative and add up to one are refused.
    """

    path: Path
    shards: tuple[Path, ...]
    source: Source
    rows: int
    probabilities: bool = False

    @classmethod
    def open(cls, path: str | Path, *, probabilities: bool = False) -> PredictionsFile:
        path = Path(path)
        if not path.exists():
            raise DataError("no such predictions file or folder", where=path, fix="make one with calibrant predict")
        if path.suffix == ".npz":
            loaded = _read_npz(path)
            return cls(path, (path,), loaded.source, len(loaded), probabilities)
        shards = tuple(sorted(path.glob("*.parquet"))) if path.is_dir() else (path,)
        if not shards:
            raise DataError("the folder holds no .parquet file", where=path)
        sources, rows = [], 0
        for shard in shards:
            source, n = _describe(shard)
            sources.append(source)
            rows += n
            if source != sources[0]:
                raise DataError(f"was written for another model or other classes than {shards[0].name}", where=shard)
        return cls(path, shards, sources[0], rows, probabilities)

    def batches(self, rows: int = 65536, *, features: bool = False) -> Iterator[Predictions]:
        for batch in self._stored(rows, features=features):
            yield self._checked(batch)

    def _checked(self, batch: Predictions) -> Predictions:
        if not len(batch) or not _sum_to_one(batch.logits):
            if len(batch) and self.probabilities:
                raise DataError("rows do not add up to one", where=self.path, fix="leave --probabilities out")
            return batch
        if not self.probabilities:
            raise DataError(
                "holds probabilities, not logits: no row has a negative number and all add up to one",
                where=self.path,
                fix="pass --probabilities, which takes their logarithms",
            )
        logits = np.log(np.maximum(batch.logits, PROBABILITY_FLOOR))
        return replace(batch, logits=logits)

    def _stored(self, rows: int, *, features: bool) -> Iterator[Predictions]:
        if self.path.suffix == ".npz":
            whole = _read_npz(self.path)
            for start in range(0, len(whole), rows):
                yield whole.rows(np.arange(start, min(start + rows, len(whole))))
            return
        import pyarrow.parquet as pq

        for shard in self.shards:
            with pq.ParquetFile(shard) as file:
                names = set(file.schema_arrow.names)
                wanted = {"id", "label", "logits", "split", "label_name"} | ({"features"} if features else set())
                for batch in file.iter_batches(rows, columns=sorted(names & wanted)):
                    yield _from_arrow(batch, self.source, shard)

    def read(self, *, features: bool = False) -> Predictions:
        """Everything at once."""
        return _concatenate(list(self.batches(features=features)), self.source)

    def sha256(self) -> str:
        """Hash of the content: of the file, or of the shards in order of name."""
        digest = hashlib.sha256()
        for shard in self.shards:
            with open(shard, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()


def read_predictions(path: str | Path, *, features: bool = False) -> Predictions:
    """The predictions of a file, a folder of shards, or an .npz, in memory."""
    return PredictionsFile.open(path).read(features=features)


def _sum_to_one(logits: NDArray[np.float32]) -> bool:
    """Is every row a distribution?"""
    if float(logits.min()) < 0 or float(logits.max()) > 1 + 1e-3:
        return False
    return bool(np.abs(logits.sum(axis=1, dtype=np.float64) - 1).max() < 1e-3)


def _fixed_list(values: NDArray[np.floating[Any]]) -> Any:
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _describe(shard: Path) -> tuple[Source, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(shard) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"not a Parquet file, or a damaged one ({error})", where=shard) from None
    if "logits" not in schema.names:
        raise FormatError(
            f"has no column `logits` (it has {', '.join(schema.names[:8])})",
            where=shard,
            fix="make a predictions file with calibrant predict",
        )
    kind = schema.field("logits").type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise FormatError(f"column `logits` is {kind}, expected a fixed-size list of float32", where=shard)
    text = (schema.metadata or {}).get(_KEY)
    source = (
        Source(tuple(str(k) for k in range(kind.list_size))) if text is None else Source.from_json(text, where=shard)
    )
    if len(source.class_names) != kind.list_size:
        raise FormatError(f"{kind.list_size} logits a row but {len(source.class_names)} class names", where=shard)
    return source, rows


def _from_arrow(batch: Any, source: Source, where: Path) -> Predictions:
    n = batch.num_rows
    names = batch.schema.names

    def matrix(name: str) -> NDArray[np.float32]:
        column = batch.column(name)
        if column.null_count:
            raise DataError(f"column `{name}` has {column.null_count} empty rows", where=where)
        width = column.type.list_size
        flat: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        return flat.reshape(n, width)

    labels = np.full(n, -1, np.int64)
    if "label" in names:
        labels = batch.column("label").fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if n and (labels.max() >= len(source.class_names) or labels.min() < -1):
            bad = int(labels.max() if labels.max() >= len(source.class_names) else labels.min())
            raise DataError(
                f"labels contain {bad} but there are {len(source.class_names)} classes",
                where=where,
                fix="was it written for another model?",
            )
    ids = tuple(batch.column("id").to_pylist()) if "id" in names else tuple(map(str, range(n)))
    split = tuple(batch.column("split").to_pylist()) if "split" in names else None
    named = tuple(batch.column("label_name").to_pylist()) if "label_name" in names else None
    return Predictions(
        ids, labels, matrix("logits"), source, matrix("features") if "features" in names else None, split, named
    )


def _read_npz(path: Path) -> Predictions:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            unread = [name for name in _UNREAD if name in arrays]
            if unread:
                raise DataError(
                    f"holds `{unread[0]}`, which is not read from a file",
                    where=path,
                    fix="leave it out; in Python, calibrant.calibration.metrics take weights=",
                )
            given = "logits" if "logits" in arrays or "probabilities" not in arrays else "probabilities"
            logits = np.asarray(arrays[given], np.float32)
            if given == "probabilities":
                logits = np.log(np.maximum(logits, PROBABILITY_FLOOR))
            labels = np.asarray(arrays["labels"], np.int64) if "labels" in arrays else np.full(len(logits), -1)
            names = [str(v) for v in arrays["classes"]] if "classes" in arrays else map(str, range(logits.shape[1]))
            ids = [str(v) for v in arrays["ids"]] if "ids" in arrays else map(str, range(len(logits)))
            return Predictions(tuple(ids), labels, logits, Source(tuple(names)))
    except (KeyError, ValueError, IndexError, OSError) as error:
        raise FormatError(f"not an .npz with `logits` [N, C] and `labels` [N] ({error})", where=path) from None


def _concatenate(parts: list[Predictions], source: Source) -> Predictions:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Predictions((), np.zeros(0, np.int64), np.zeros((0, len(source.class_names)), np.float32), source)
    features = [p.features for p in parts if p.features is not None]
    splits = [p.split for p in parts if p.split is not None]
    named = [p.label_names for p in parts if p.label_names is not None]
    return Predictions(
        tuple(i for p in parts for i in p.ids),
        np.concatenate([p.labels for p in parts]),
        np.concatenate([p.logits for p in parts]),
        source,
        np.concatenate(features) if len(features) == len(parts) else None,
        tuple(s for split in splits for s in split) if len(splits) == len(parts) else None,
        tuple(n for names in named for n in names) if len(named) == len(parts) else None,
    )
