"""Predictions on disk, in one file or in shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_logits import said_of_cut
from calibrant.artifacts.feedback_records import PARQUET
from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.precision import EXACT_FLOOR
from calibrant.artifacts.predictions.columns import group_column, is_group
from calibrant.artifacts.predictions.rows import FOLD, Predictions, concatenated
from calibrant.artifacts.predictions.shard import describe, from_arrow, is_own
from calibrant.artifacts.predictions.source import Source
from calibrant.errors import DataError

if TYPE_CHECKING:
    from calibrant.artifacts.foreign.read import Asked


def shards_of(path: Path) -> tuple[Path, ...]:
    """The files that are one table, in order of name: those of a folder, or the file itself; not a feedback log's."""
    if not path.is_dir():
        return (path,)
    return tuple(sorted(p for p in path.glob("*.parquet") if not p.name.endswith(PARQUET)))


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
        if path.suffix == ".onnx":
            raise DataError(
                "is a deployed file and holds no predictions",
                where=path,
                fix=f"make them: calibrant predict {path.name} --data IMAGES --out predictions.parquet",
            )
        if path.name.endswith(PARQUET):
            raise DataError("is a part of a feedback log", where=path, fix="give the folder that it lies in")
        shards = shards_of(path)
        if not shards:
            return cls._served(path)
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
                fix="calibrant evaluate and calibrant calibrate read them",
            )
        return found

    @classmethod
    def in_memory(cls, predictions: Predictions, name: Path) -> PredictionsFile:
        """What lies in no file, for whatever takes one; messages call it `name`."""
        return cls(name, (), predictions.source, len(predictions), foreign=predictions)

    @classmethod
    def _served(cls, path: Path) -> PredictionsFile:
        """A server's feedback log: what one deployed file answered, the one with most labels."""
        from calibrant.artifacts.feedback import read_feedback, segments

        found = read_feedback(path).served if segments(path) else ()
        if not found:
            raise DataError("the folder holds no .parquet file and no feedback log", where=path)
        chosen = max(found, key=lambda served: (int((served.labels >= 0).sum()), len(served.ids)))
        held, model = chosen.predictions(), chosen.model
        note = f"the answers of {model.name} version {model.version} as served, calibrator and prior included"
        if chosen.cut is not None:
            note += f"; {said_of_cut(held.logits, held.labels, chosen.cut)}"
        if len(found) > 1:
            note += f"; {len(found) - 1} other deployed files in this log are left out"
        return cls(path, tuple(segments(path)), held.source, len(held), "logits", held, (note,))

    @classmethod
    def _own(cls, path: Path, shards: tuple[Path, ...], asked: Asked) -> PredictionsFile:
        if asked.kind not in (None, "logits", "probabilities"):
            raise DataError(f"is our own file, which holds no {asked.kind}", where=path, fix="drop --kind")
        sources, rows = [], 0
        for shard in shards:
            source, n = describe(shard)
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
                wanted |= {name for name in names if is_group(name)}
                for batch in file.iter_batches(rows, columns=sorted(names & wanted)):
                    yield from_arrow(batch, self.source, shard)

    def group_columns(self) -> dict[str, tuple[str | None, ...]]:
        """Columns that name groups, and their values for the labelled rows; logits are not read. Folds are none."""
        if self.foreign is not None:
            return dict(self.foreign.labelled().groups)
        import pyarrow.parquet as pq

        names = [n for n in pq.read_schema(self.shards[0]).names if is_group(n) and n != group_column(FOLD)]
        names = [n for n in names if all(n in pq.read_schema(shard).names for shard in self.shards)]
        if not names or self.source.independent or "label" not in pq.read_schema(self.shards[0]).names:
            return {}
        found: dict[str, list[str | None]] = {name: [] for name in names}
        for shard in self.shards:
            table = pq.read_table(shard, columns=[*names, "label"])
            known = (table.column("label").fill_null(-1).to_numpy() >= 0).nonzero()[0]
            for name in names:
                found[name] += table.column(name).take(known).to_pylist()
        return {name.removeprefix("group_"): tuple(values) for name, values in found.items()}

    def read(self, *, features: bool = False) -> Predictions:
        """Everything at once."""
        if self.foreign is not None:
            return self.foreign
        return concatenated(list(self.batches(features=features)), self.source)

    def sha256(self) -> str:
        """Hash of the content: of the file, or of the shards in order of name."""
        digest = hashlib.sha256()
        if self.foreign is not None and not self.shards:
            for part in (self.foreign.logits, self.foreign.labels):
                digest.update(np.ascontiguousarray(part).tobytes())
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
