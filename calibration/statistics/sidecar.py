"""Statistics of a predictions file, computed in one pass and kept beside it as NAME.stats.npz.

An .npz of plain arrays (no pickle): sparse tables as indices and values, and a JSON header with the format version, the
hash of the predictions and that of the formula. The statistics are read back only while both hashes are the same.
Hashing reads the whole file, so the header also remembers size and modification time of each shard: while those are
unchanged the stored hash is trusted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, PredictionsFile
from calibrant.atomic import replacing
from calibrant.calibration.formula import Formula
from calibrant.calibration.statistics.accumulate import Accumulator
from calibrant.calibration.statistics.grid import grid
from calibrant.calibration.statistics.reservoir import SampledRows
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.calibration.statistics.tables import ClassSums, KeptRows, Table
from calibrant.errors import ConfigError, DataError, FormatError
from calibrant.progress import progress

log = logging.getLogger(__name__)

FORMAT_VERSION = 2  # 2: with a sample of whole rows
Engine = Literal["calibrant", "ray"]
_BATCH_NUMBERS = 1 << 19  # logits read at a time
_TABLES = ("right", "wrong_by_predicted", "wrong_by_true", "all_right", "all_wrong", "probability")
_SUMS = ("rows", "top5", "zero", "nll", "nll_squared", "brier", "brier_squared", "entropy", "p_squared")


def statistics_for_file(
    path: Path,
    formula: Formula | None,
    *,
    cache: bool,
    file: PredictionsFile | None = None,
    engine: Engine = "calibrant",
) -> Statistics:
    file = file or PredictionsFile.open(path)
    cache = cache and file.foreign is None  # nothing is left beside what is not ours
    where = sidecar_path(path, formula)
    stamps = _stamps(file)
    if cache and where.exists():
        try:
            header, statistics = load(where)
        except FormatError as error:
            log.warning("%s is made again: %s", where.name, error.what)
        else:
            if header["stamps"] == stamps or header["predictions"] == file.sha256():
                return statistics
    statistics = compute(file, formula, engine=engine)
    if cache:
        try:
            save(where, statistics, predictions=file.sha256(), stamps=stamps)
        except OSError as error:  # a read-only folder is no reason to fail
            log.info("statistics are not kept beside %s: %s", path, error.strerror)
    return statistics


def sidecar_path(path: Path, formula: Formula | None = None) -> Path:
    """NAME.stats.npz, or with the start of the formula's hash in its name."""
    middle = "" if formula is None or formula.plain else f".{formula.key()[:10]}"
    return path.with_name(f"{path.stem if path.is_file() else path.name}{middle}.stats.npz")


def compute(file: PredictionsFile, formula: Formula | None = None, *, engine: Engine = "calibrant") -> Statistics:
    """One pass over the labelled rows, in memory that does not grow with them: of each shard, added in the order of
    their names. `engine="ray"` has each computed by a task of Ray; the sum is the same to the bit."""
    parts: Iterator[Statistics | None]
    if engine == "ray":
        if file.foreign is not None:
            raise ConfigError(
                "--engine ray reads shards of predictions; this is read whole", where=file.path, fix="leave it out"
            )
        from calibrant.calibration.statistics.on_ray import shards_on_ray

        parts = shards_on_ray(file, formula)
    else:
        parts = (of_shard(file, shard, formula) for shard in (file.shards if file.foreign is None else (file.path,)))
    whole: Statistics | None = None
    for part in parts:
        if part is not None:
            whole = part if whole is None else whole + part
    if whole is None:
        raise DataError(
            "no row has a label" if file.rows else "holds no rows",
            where=file.path,
            fix="evaluation and calibration need labelled predictions",
        )
    return whole


def of_shard(file: PredictionsFile, shard: Path, formula: Formula | None = None) -> Statistics | None:
    """Of one of the files; None where it has no labelled row."""
    classes = len(file.source.class_names)
    accumulator = Accumulator(classes, rows_expected=file.rows)
    rows = max(1024, _BATCH_NUMBERS // classes)
    one = file if file.foreign is not None else replace(file, shards=(shard,))
    total = -(-file.rows // rows) if len(file.shards) == 1 else None
    found = 0
    features = formula is not None and formula.reads_features
    for batch in progress(
        one.batches(rows, features=features), what=f"reading {shard.name}", total=total, unit="batch"
    ):
        part = batch.labelled()
        if len(part) == 0:
            continue
        found += len(part)
        refuse_weights(part, file.path)
        z = part.logits if formula is None or formula.plain else formula.logits(part.logits, part.features)
        accumulator.add(z, part.labels)
    return accumulator.finish() if found else None


def refuse_weights(rows: Predictions, where: Path) -> None:
    if rows.weights is not None:
        raise DataError(
            "holds weights of single rows, which the statistics do not know",
            where=where,
            fix="leave the column out; in Python, calibrant.calibration.metrics take weights=",
        )


def save(path: Path, s: Statistics, *, predictions: str, stamps: list[list[Any]]) -> None:
    if s.class_weights is not None:
        raise ValueError("statistics are kept without weights")
    header = {
        "kind": "statistics", "format_version": FORMAT_VERSION, "predictions": predictions, "stamps": stamps,
        "classes": s.classes, "order": s.order, "kept": s.kept is not None, "sampled": s.sampled is not None,
    }  # fmt: skip
    arrays: dict[str, NDArray[Any]] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    for name in _TABLES:
        table: Table = getattr(s, name)
        index = np.flatnonzero(table.count)
        arrays[f"{name}_index"] = index
        arrays[f"{name}_count"], arrays[f"{name}_total"] = (
            table.count.reshape(-1)[index],
            table.total.reshape(-1)[index],
        )
    index = np.flatnonzero(s.positive)
    arrays["positive_index"], arrays["positive_count"] = index, s.positive.reshape(-1)[index]
    arrays |= {f"class_{name}": getattr(s.by_true, name) for name in _SUMS}
    arrays["confusion_pair"], arrays["confusion_count"] = s.confusion_pair, s.confusion_count
    if s.kept is not None:
        arrays |= {"kept_confidence": s.kept.confidence, "kept_label": s.kept.label, "kept_correct": s.kept.correct}
    if s.sampled is not None:
        arrays |= {"sampled_key": s.sampled.key, "sampled_label": s.sampled.label, "sampled_probs": s.sampled.probs}
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def load(path: Path) -> tuple[dict[str, Any], Statistics]:
    try:
        # A stream of our own: on a damaged file numpy would leave its own open.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            header: dict[str, Any] = json.loads(arrays["header"].tobytes())
            version = int(header["format_version"])
            if version > FORMAT_VERSION:
                raise FormatError(
                    f"statistics format {version} is newer than this Calibrant reads ({FORMAT_VERSION})", where=path
                )
            if version < FORMAT_VERSION:
                raise FormatError(f"statistics format {version} lacks what format {FORMAT_VERSION} keeps", where=path)
            return header, _statistics(header, arrays)
    except FormatError:
        raise
    except Exception as error:  # zip, JSON and array errors alike: the file is not what it should be
        raise FormatError(f"damaged statistics ({error!r})", where=path) from None


def _statistics(header: dict[str, Any], a: Any) -> Statistics:
    c, order = int(header["classes"]), int(header["order"])
    by_class, fine = (c, grid(order).cells), (grid(100).cells,)

    def dense(shape: tuple[int, ...], index: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros(int(np.prod(shape)), values.dtype)
        out[index] = values
        return out.reshape(shape)

    tables: dict[str, Any] = {}
    for name in _TABLES:
        shape, index = fine if name.startswith("all") else by_class, a[f"{name}_index"]
        tables[name] = Table(dense(shape, index, a[f"{name}_count"]), dense(shape, index, a[f"{name}_total"]))
    kept = None
    if header["kept"]:
        kept = KeptRows(a["kept_confidence"], a["kept_label"], a["kept_correct"])
    sampled = None
    if header["sampled"]:
        sampled = SampledRows(a["sampled_key"], a["sampled_label"], a["sampled_probs"])
    return Statistics(
        classes=c,
        order=order,
        positive=dense(by_class, a["positive_index"], a["positive_count"]),
        by_true=ClassSums(*(a[f"class_{name}"] for name in _SUMS)),
        confusion_pair=a["confusion_pair"],
        confusion_count=a["confusion_count"],
        kept=kept,
        sampled=sampled,
        **tables,
    )


def _stamps(file: PredictionsFile) -> list[list[Any]]:
    return [[shard.name, shard.stat().st_size, shard.stat().st_mtime_ns] for shard in file.shards]
