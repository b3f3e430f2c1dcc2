"""The predictions file: what a model said about each sample, on its way from training or serving to calibration.

Parquet with the columns `id` (string), `label` (int64, null where unknown), `logits` (fixed-size list of float32),
and where wanted `features` (likewise) and `split` (string). Where images have labels that are no classes of the model,
`label` is null for them and `label_name` (string) says what every image was labelled with. Class names, the training
prior and the model's identity stand as JSON in the schema metadata under "calibrant". A folder of such files is one
table in shards.

`logits` are the model's own, with its class temperatures (VACE) applied and nothing else: softmax(logits) is what the
uncalibrated model claims.

Where the outcome is independent (see `foreign.outcome`), a column `labels` (fixed-size list of int8: 0, 1, null where
unknown) takes the place of `label`, and sigmoid that of softmax. `weight` (double) and `group`, `group_NAME` (string)
are kept where somebody else's file has them.

Files of other kinds (npz, npy, CSV, other Parquet, JSON lines, .pt) are read by `foreign.read`, whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.kinds import Kind, Rounded
from calibrant.artifacts.foreign.outcome import OUTCOMES, Outcome
from calibrant.artifacts.foreign.precision import EXACT_FLOOR
from calibrant.atomic import replacing
from calibrant.errors import DataError, FormatError

if TYPE_CHECKING:
    from calibrant.artifacts.foreign.read import Asked

FORMAT_VERSION = 2  # 2: independent labels, which a reader of version 1 would take for classes
_KEY = b"calibrant"
_ROW_GROUP_BYTES = 32 << 20


@dataclass(frozen=True)
class Source:
    """What a predictions file says about the model and the classes; equal over all its shards."""

    class_names: tuple[str, ...]
    train_prior: tuple[float, ...] | None = None  # share of each class in the training set
    absorbed: float = 0.0  # strength of the prior correction that the training loss already made
    class_temperatures: tuple[float, ...] | None = None  # already applied to the logits
    model: Mapping[str, Any] = field(default_factory=dict)  # name, hash, run ...
    outcome: Outcome = "exclusive"
    rounded: Rounded | None = None  # the logits are of rounded probabilities, and their zeros decide what is fitted

    @property
    def independent(self) -> bool:
        return self.outcome == "independent"

    def to_json(self) -> str:
        block = {
            "kind": "predictions", "format_version": FORMAT_VERSION if self.independent else 1,
            "class_names": list(self.class_names),
            **({"outcome": self.outcome} if self.independent else {}),
            **({} if self.rounded is None else {"rounded": asdict(self.rounded)}),
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
            outcome, rounded = block.get("outcome", "exclusive"), block.get("rounded")
            if outcome not in OUTCOMES:
                raise ValueError(f"outcome {outcome!r}")
            source = cls(
                tuple(map(str, block["class_names"])),
                tuple(map(float, prior)) if prior is not None else None,
                float(block.get("absorbed", 0.0)),
                tuple(map(float, taus)) if taus is not None else None,
                dict(block.get("model", {})),
                outcome,
                None if rounded is None else Rounded(float(rounded["floor"]), float(rounded["zeros"])),
            )
        except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
            raise FormatError(f"damaged predictions metadata ({error})", where=where) from None
        for name, values in (("train_prior", source.train_prior), ("class_temperatures", source.class_temperatures)):
            if values is not None and len(values) != len(source.class_names):
                raise FormatError(f"{name} has {len(values)} values for {len(source.class_names)} classes", where=where)
        return source


@dataclass(frozen=True)
class Predictions:
    """A predictions file, or a part of one, in memory. A label of -1 is unknown.

    Independent labels stand in `present` (N, L): 1, 0, or -1 where unknown; `labels` are then all -1.
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,)
    logits: NDArray[np.float32]  # (N, C)
    source: Source
    features: NDArray[np.float32] | None = None  # (N, D)
    split: tuple[str, ...] | None = None
    label_names: tuple[str | None, ...] | None = None  # of the data, where some are no classes of the model
    present: NDArray[np.int8] | None = None  # (N, L)
    weights: NDArray[np.float64] | None = None  # (N,)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, c = self.logits.shape
        if len(self.ids) != n or self.labels.shape != (n,):
            raise ValueError(f"{len(self.ids)} ids and {self.labels.shape[0]} labels for {n} rows of logits")
        if c != len(self.source.class_names):
            raise ValueError(f"{c} logits a row but {len(self.source.class_names)} class names")
        if (self.present is None) == self.source.independent:
            raise ValueError("independent labels, and only they, stand in a matrix")
        if self.present is not None and self.present.shape != (n, c):
            raise ValueError(f"labels have shape {self.present.shape} for logits of {self.logits.shape}")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.source.class_names

    def labelled(self) -> Predictions:
        """The rows whose label is known; of independent ones, any of them."""
        known = self.labels >= 0 if self.present is None else (self.present >= 0).any(axis=1)
        keep = np.flatnonzero(known)
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
            None if self.present is None else self.present[index],
            None if self.weights is None else self.weights[index],
            {name: tuple(values[i] for i in index) for name, values in self.groups.items()},
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
                present=self.present,
                weights=self.weights,
                groups=self.groups,
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
        present: NDArray[np.int8] | None = None,
        weights: NDArray[np.float64] | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Adds rows; labels of -1 (or labels=None) are written as null."""
        import pyarrow as pa

        n = len(ids)
        columns = {"id": pa.array(ids, pa.string()), "logits": _fixed_list(logits)}
        if self.source.independent:
            given = np.full(np.shape(logits), -1, np.int8) if present is None else present
            flat = pa.array(given.reshape(-1), pa.int8(), mask=given.reshape(-1) < 0)
            columns["labels"] = pa.FixedSizeListArray.from_arrays(flat, given.shape[1])
        else:
            known = np.full(n, -1, np.int64) if labels is None else np.asarray(labels, np.int64)
            columns["label"] = pa.array(known, pa.int64(), mask=known < 0)
        if features is not None:
            columns["features"] = _fixed_list(features)
        if split is not None:
            columns["split"] = pa.array([split] * n if isinstance(split, str) else split, pa.string())
        if label_names is not None:
            columns["label_name"] = pa.array(label_names, pa.string())
        if weights is not None:
            columns["weight"] = pa.array(weights, pa.float64())
        for name, values in (groups or {}).items():
            columns[_group_column(name)] = pa.array(values, pa.string())
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

    A file that somebody else wrote is read whole, into `foreign`; `kind` and `notes` say what it was taken for.
    """

    path: Path
    shards: tuple[Path, ...]
    source: Source
    rows: int
    kind: Kind | None = None  # what the scores were, or are said to be
    foreign: Predictions | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def open(
        cls, path: str | Path, *, kind: Kind | None = None, asked: Asked | None = None, independent: bool = False
    ) -> PredictionsFile:
        """`kind`: what the scores are, where the file does not tell; `asked` says that and more.

        Independent labels are refused unless the caller knows them (`independent`).
        """
        from calibrant.artifacts.foreign.read import Asked, read_foreign

        path = Path(path)
        asked = asked or Asked(kind=kind)
        if not path.exists():
            raise DataError("no such predictions file or folder", where=path, fix="make one with calibrant predict")
        shards = tuple(sorted(path.glob("*.parquet"))) if path.is_dir() else (path,)
        if not shards:
            raise DataError("the folder holds no .parquet file", where=path)
        if is_own(shards[0]):
            found = cls._own(path, shards, asked)
        else:
            read = read_foreign(path, asked=asked)
            held = read.predictions
            shards = shards if path.is_dir() else read.files
            found = cls(path, shards, held.source, len(held), read.kind, held, read.notes)
        if found.source.independent and not independent:
            raise DataError(
                "holds independent labels (sigmoid), which this does not know",
                where=path,
                fix="calibrant evaluate and calibrate do",
            )
        return found

    @classmethod
    def _own(cls, path: Path, shards: tuple[Path, ...], asked: Asked) -> PredictionsFile:
        if asked.kind not in (None, "logits", "probabilities"):
            raise DataError(f"is our own file, which holds no {asked.kind}", where=path, fix="drop --kind")
        sources, rows = [], 0
        for shard in shards:
            source, n = _describe(shard)
            sources.append(source)
            rows += n
            if source != sources[0]:
                raise DataError(f"was written for another model or other classes than {shards[0].name}", where=shard)
        return cls(path, shards, sources[0], rows, asked.kind)

    def batches(self, rows: int = 65536, *, features: bool = False) -> Iterator[Predictions]:
        if self.foreign is not None:
            for start in range(0, self.rows, rows):
                yield self.foreign.rows(np.arange(start, min(start + rows, self.rows)))
            return
        for batch in self._stored(rows, features=features):
            yield batch if self.source.independent else self._checked(batch)

    def _checked(self, batch: Predictions) -> Predictions:
        if not len(batch) or not _sum_to_one(batch.logits):
            if len(batch) and self.kind == "probabilities":
                raise DataError("rows do not add up to one", where=self.path, fix="leave --probabilities out")
            return batch
        if self.kind != "probabilities":
            raise DataError(
                "holds probabilities, not logits: no row has a negative number and all add up to one",
                where=self.path,
                fix="pass --kind probabilities, which takes their logarithms",
            )
        logits = np.log(np.maximum(batch.logits, EXACT_FLOOR))
        return replace(batch, logits=logits)

    def _stored(self, rows: int, *, features: bool) -> Iterator[Predictions]:
        import pyarrow.parquet as pq

        for shard in self.shards:
            with pq.ParquetFile(shard) as file:
                names = set(file.schema_arrow.names)
                wanted = {"id", "label", "labels", "logits", "split", "label_name", "weight"}
                wanted |= {"features"} if features else set()
                wanted |= {name for name in names if _is_group(name)}
                for batch in file.iter_batches(rows, columns=sorted(names & wanted)):
                    yield _from_arrow(batch, self.source, shard)

    def read(self, *, features: bool = False) -> Predictions:
        """Everything at once."""
        if self.foreign is not None:
            return self.foreign
        return _concatenate(list(self.batches(features=features)), self.source)

    def sha256(self) -> str:
        """Hash of the content: of the file, or of the shards in order of name."""
        digest = hashlib.sha256()
        for shard in self.shards:
            with open(shard, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()


def read_predictions(path: str | Path, *, features: bool = False) -> Predictions:
    """The predictions of a file or a folder of shards, in memory."""
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


def is_own(path: Path) -> bool:
    """Was it written by Calibrant? What is no Parquet file at all is not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        return False
    try:
        return _KEY in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _group_column(name: str) -> str:
    return name if name == "group" else f"group_{name}"


def _is_group(column: str) -> bool:
    return column == "group" or column.startswith("group_")


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
            fix="make it again with calibrant predict",
        )
    kind = schema.field("logits").type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise FormatError(f"column `logits` is {kind}, expected a fixed-size list of float32", where=shard)
    source = Source.from_json(schema.metadata[_KEY], where=shard)
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
    present = None
    if source.independent:
        present = np.full((n, len(source.class_names)), -1, np.int8)
        if "labels" in names:
            flat = batch.column("labels").flatten().fill_null(-1)
            present = flat.to_numpy(zero_copy_only=False).astype(np.int8).reshape(n, -1)
    return Predictions(
        ids,
        labels,
        matrix("logits"),
        source,
        matrix("features") if "features" in names else None,
        split,
        named,
        present,
        batch.column("weight").to_numpy(zero_copy_only=False) if "weight" in names else None,
        {n.removeprefix("group_"): tuple(batch.column(n).to_pylist()) for n in names if _is_group(n)},
    )


def _concatenate(parts: list[Predictions], source: Source) -> Predictions:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        empty = np.zeros((0, len(source.class_names)), np.float32)
        present = empty.astype(np.int8) if source.independent else None
        return Predictions((), np.zeros(0, np.int64), empty, source, present=present)
    features = [p.features for p in parts if p.features is not None]
    splits = [p.split for p in parts if p.split is not None]
    named = [p.label_names for p in parts if p.label_names is not None]
    known = [p.present for p in parts if p.present is not None]
    weights = [p.weights for p in parts if p.weights is not None]
    groups = {name for p in parts for name in p.groups if all(name in other.groups for other in parts)}
    return Predictions(
        tuple(i for p in parts for i in p.ids),
        np.concatenate([p.labels for p in parts]),
        np.concatenate([p.logits for p in parts]),
        source,
        np.concatenate(features) if len(features) == len(parts) else None,
        tuple(s for split in splits for s in split) if len(splits) == len(parts) else None,
        tuple(n for names in named for n in names) if len(named) == len(parts) else None,
        np.concatenate(known) if known else None,
        np.concatenate(weights) if len(weights) == len(parts) else None,
        {name: tuple(g for p in parts for g in p.groups[name]) for name in sorted(groups)},
    )
