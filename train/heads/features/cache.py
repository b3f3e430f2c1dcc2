"""The feature cache: a folder of Parquet shards and one features.json that says how they were made.

    feats/features.json                      model, its hash, preprocessing, pooling, views, classes, images
    feats/train-eval-00000.parquet           id, label, features (fixed-size list)

One shard holds one view of `block` images of one split, in the order of the data. A shard appears by rename when it is
complete, so that extraction goes on where it stopped, and a folder that was made with another model, other pixels or
other images is refused instead of mixed. Patch tokens are stored flat, T * D numbers a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import replacing, write_json
from calibrant.errors import DataError, FormatError, did_you_mean

FORMAT_VERSION = 1
MANIFEST = "features.json"
Pooling = Literal["head", "class", "mean", "class+mean", "tokens"]
Storage = Literal["float32", "float16"]


@dataclass(frozen=True)
class Manifest:
    """What makes two caches the same. `images` has a digest of the ids, sizes and labels of each split."""

    model: Mapping[str, Any]  # name, options, sha256 of the backbone's tensors, weights (file name only)
    preprocessing: Mapping[str, Any]
    pooling: Pooling
    width: int  # D
    tokens: int  # T; 1 where features are vectors
    storage: Storage
    amp: str
    seed: int  # of random views
    block: int  # images a shard
    class_names: tuple[str, ...]
    splits: Mapping[str, int]  # images of each
    images: Mapping[str, str]
    views: tuple[str, ...] = ("eval",)  # complete or being made
    made_with: Mapping[str, str] = field(default_factory=dict)
    layers: int = 1  # so many from the end, pooled side by side

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "features", "format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, block: Any, *, where: Path) -> Manifest:
        try:
            if block["kind"] != "features":
                raise FormatError(f"describes {block['kind']}, expected features", where=where)
            version = int(block["format_version"])
            if version > FORMAT_VERSION:
                raise FormatError(
                    f"features format {version} is newer than this Calibrant reads ({FORMAT_VERSION})",
                    where=where,
                    fix="update calibrant",
                )
            values = {k: v for k, v in block.items() if k not in ("kind", "format_version")}
            return cls(**{**values, "class_names": tuple(values["class_names"]), "views": tuple(values["views"])})
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"damaged description of features ({error})", where=where) from None

    def difference(self, other: Manifest) -> str | None:
        """What would make shards of the two incompatible, in words; None where nothing would."""
        if self.model["sha256"] != other.model["sha256"]:
            return f"the features are from another model ({self.model['name']}, weights {self.model['sha256'][:12]})"
        for name in ("preprocessing", "pooling", "layers", "storage", "amp", "seed", "block", "tokens", "width"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if _plain(mine) != _plain(theirs):
                return f"the features were made with {name} {_short(mine, theirs)}"
        if tuple(self.class_names) != tuple(other.class_names):
            return "the features have other classes"
        for split in self.images.keys() & other.images.keys():
            if self.images[split] != other.images[split]:
                return f"the images of {split} are not those that the features were made from"
        return None


class FeatureCache:
    """A cache folder, for reading."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest

    @classmethod
    def open(cls, path: str | Path) -> FeatureCache:
        path = Path(path)
        if path.is_file() and path.suffix != ".json":
            from calibrant.train.heads.features.own_table import TableFeatures

            return TableFeatures.read_file(path)
        file = path / MANIFEST
        try:
            block = json.loads(file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise FormatError(
                f"is not a feature cache: it has no {MANIFEST}",
                where=path,
                fix=f"make one with: calibrant features --model NAME --data DIR --out {path}",
            ) from None
        except (OSError, ValueError) as error:
            raise FormatError(f"cannot be read ({error})", where=file) from None
        return cls(path, Manifest.from_dict(block, where=file))

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.manifest.class_names)

    @property
    def has_backbone(self) -> bool:
        """Is it known what made the features, so that a head and that are one network?"""
        return True

    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest.splits)

    def shard(self, split: str, view: str, number: int) -> Path:
        return self.path / f"{split}-{view}-{number:05d}.parquet"

    def shards(self, split: str) -> int:
        return -(-self.manifest.splits[split] // self.manifest.block)

    def missing(self, split: str, view: str) -> list[int]:
        return [i for i in range(self.shards(split)) if not self.shard(split, view, i).is_file()]

    def read(self, split: str, view: str = "eval") -> FeatureRows:
        """All rows of a split through one view."""
        if split not in self.manifest.splits:
            raise DataError(f'has no split "{split}"', where=self.path, fix=did_you_mean(split, self.manifest.splits))
        if view not in self.manifest.views:
            raise DataError(
                f'has no view "{view}"',
                where=self.path,
                fix=f"{did_you_mean(view, self.manifest.views)}; or add it: calibrant features ... --view {view}",
            )
        gaps = self.missing(split, view)
        if gaps:
            raise DataError(
                f"extraction is not complete: {split} ({view}) lacks {len(gaps)} of {self.shards(split)} shards",
                where=self.path,
                fix=f"calibrant features ... --split {split} --view {view} goes on where it stopped",
            )
        parts = [self._read_shard(self.shard(split, view, i)) for i in range(self.shards(split))]
        rows = FeatureRows(
            tuple(i for p in parts for i in p.ids),
            np.concatenate([p.labels for p in parts]),
            np.concatenate([p.features for p in parts]),
            tuple(i for p in parts for i in p.partners or ()) or None,
            np.concatenate([p.shares for p in parts if p.shares is not None]) if parts[0].shares is not None else None,
        )
        if len(rows.ids) != self.manifest.splits[split]:
            raise FormatError(
                f"{split} ({view}) has {len(rows.ids)} rows, {MANIFEST} says {self.manifest.splits[split]}",
                where=self.path,
                fix="delete the folder and extract again",
            )
        return rows

    def _read_shard(self, file: Path) -> FeatureRows:
        import pyarrow as pa
        import pyarrow.parquet as pq

        m = self.manifest
        try:
            table = pq.read_table(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise FormatError(f"not a readable Parquet file ({error})", where=file) from None
        for column in ("id", "label", "features"):
            if column not in table.schema.names:
                raise FormatError(
                    f'has no column "{column}"',
                    where=file,
                    fix=f"its columns are {', '.join(table.schema.names)}; extract again or rename one",
                )
        kind = table.schema.field("features").type
        if not pa.types.is_fixed_size_list(kind) or kind.list_size != m.width * m.tokens:
            got = kind.list_size if pa.types.is_fixed_size_list(kind) else kind
            raise FormatError(f"features have width {got}, {MANIFEST} says {m.width * m.tokens}", where=file)
        flat = table.column("features").combine_chunks().flatten().to_numpy(zero_copy_only=False)
        features = flat.astype(np.float32, copy=False).reshape(len(table), -1)
        if m.tokens > 1:
            features = features.reshape(len(table), m.tokens, m.width)
        if not np.isfinite(features).all():
            row = int(np.flatnonzero(~np.isfinite(features).reshape(len(table), -1).all(1))[0])
            raise DataError(
                f"features of {table.column('id')[row].as_py()} are not finite", where=file, fix="extract without --amp"
            )
        labels = table.column("label").fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(labels) and (labels.min() < 0 or labels.max() >= len(m.class_names)):
            bad = int(labels.max()) if labels.max() >= len(m.class_names) else int(labels.min())
            what = "a row has no label" if bad == -1 else f"label {bad}, but there are {len(m.class_names)} classes"
            raise DataError(what, where=file, fix="was it written for other data?")
        ids = tuple(table.column("id").to_pylist())
        if "partner" not in table.schema.names:
            return FeatureRows(ids, labels, features)
        shares = table.column("share").to_numpy(zero_copy_only=False).astype(np.float32)
        return FeatureRows(ids, labels, features, tuple(table.column("partner").to_pylist()), shares)


@dataclass(frozen=True)
class FeatureRows:
    """Features of a split: (N, D), or (N, T, D) patch tokens. partners, shares: of views that mix two images, the id
    of the other one and what part is the image's own.
    """

    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    features: NDArray[np.float32]
    partners: tuple[str, ...] | None = None
    shares: NDArray[np.float32] | None = None


def write_shard(
    file: Path,
    ids: Sequence[str],
    labels: NDArray[np.int64],
    features: NDArray[np.floating[Any]],
    storage: Storage,
    mixed: tuple[Sequence[str], NDArray[np.float32]] | None = None,
) -> None:
    """`mixed`: partners and shares of views of two images."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = np.ascontiguousarray(features.reshape(len(ids), -1), dtype=np.dtype(storage))
    values = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
    columns = {"id": pa.array(ids, pa.string()), "label": pa.array(labels, pa.int64()), "features": values}
    if mixed is not None:
        columns |= {"partner": pa.array(mixed[0], pa.string()), "share": pa.array(mixed[1], pa.float32())}
    table = pa.table(columns)
    with replacing(file) as temporary:
        # Float features are noise to a compressor.
        small = {name: "zstd" for name in columns if name != "features"}
        pq.write_table(table, temporary, compression={**small, "features": "none"})


def write_manifest(path: Path, manifest: Manifest) -> None:
    write_json(path / MANIFEST, manifest.to_dict())


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _short(mine: Any, theirs: Any) -> str:
    """The entries that differ, of two tables; both values otherwise."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        a, b = _plain(dict(mine)), _plain(dict(theirs))
        keys = [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)]
        return ", ".join(f"{k} = {a.get(k)}, not {b.get(k)}" for k in sorted(keys))
    return f"{mine}, not {theirs}"
