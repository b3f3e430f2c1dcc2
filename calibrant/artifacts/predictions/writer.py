"""Writes a predictions file, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions.columns import fixed_list, group_column
from calibrant.artifacts.predictions.source import KEY, Source
from calibrant.atomic import replacing

_ROW_GROUP_BYTES = 32 << 20


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
        columns = {"id": pa.array(ids, pa.string()), "logits": fixed_list(logits)}
        if self.source.independent:
            given = np.full(np.shape(logits), -1, np.int8) if present is None else present
            flat = pa.array(given.reshape(-1), pa.int8(), mask=given.reshape(-1) < 0)
            columns["labels"] = pa.FixedSizeListArray.from_arrays(flat, given.shape[1])
        else:
            known = np.full(n, -1, np.int64) if labels is None else np.asarray(labels, np.int64)
            columns["label"] = pa.array(known, pa.int64(), mask=known < 0)
        if features is not None:
            columns["features"] = fixed_list(features)
        if split is not None:
            columns["split"] = pa.array([split] * n if isinstance(split, str) else split, pa.string())
        if label_names is not None:
            columns["label_name"] = pa.array(label_names, pa.string())
        if weights is not None:
            columns["weight"] = pa.array(weights, pa.float64())
        for name, values in (groups or {}).items():
            columns[group_column(name)] = pa.array(values, pa.string())
        self._write(pa.table(columns).replace_schema_metadata({KEY: self.source.to_json()}))

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
