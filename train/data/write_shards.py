"""Packing images into shards: few large files that any reader of WebDataset or Parquet understands."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibrant.atomic import replacing
from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import Given, ImageSet
from calibrant.progress import bar
from calibrant.train.data.split import Splits

ROW_GROUP = 16  # images; what is read to reach one of them
_SIGNS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"BM": "bmp", b"II*\x00": "tif", b"MM\x00*": "tif"}


@dataclass(frozen=True)
class Packed:
    files: tuple[Path, ...]
    images: dict[str, int]  # in each split


def write_shards(
    splits: Splits,
    out: str | Path,
    *,
    kind: Literal["parquet", "tar"] = "parquet",
    images_per_shard: int = 1000,
    overwrite: bool = False,
) -> Packed:
    """OUT/{train,val,test}-00000.parquet ..., with the bytes of the image files as they are; pixels become PNG.

    Classes go in by name. Groups are kept by Parquet; WebDataset has no place for them and is refused.
    """
    out = Path(out)
    sets = {"train": splits.train, "val": splits.val, "test": splits.test}
    if kind == "tar" and any(s is not None and s.groups is not None for s in sets.values()):
        raise ConfigError("tar shards cannot hold groups", where="--format", fix="use parquet")
    if out.is_file():
        raise ConfigError("is a file; give a folder", where=out)
    old = [p for suffix in ("parquet", "tar") for p in sorted(out.glob(f"*.{suffix}"))]
    if old and not overwrite:
        raise ConfigError(f"holds shards already ({old[0].name})", where=out, fix="pass --overwrite or another --out")
    writers: dict[str, Callable[[Path, Splits, ImageSet, range], None]] = {"parquet": _parquet, "tar": _tar}
    files: list[Path] = []
    counts = {name: len(images) for name, images in sets.items() if images is not None}
    with bar(what=f"write {kind} shards", total=sum(counts.values()), unit="img") as shown:
        for name, images in sets.items():
            for first in range(0, 0 if images is None else len(images), images_per_shard):
                assert images is not None  # the range is empty then
                rows = range(first, min(first + images_per_shard, len(images)))
                file = out / f"{name}-{first // images_per_shard:05d}.{kind}"
                with replacing(file) as temporary:
                    writers[kind](temporary, splits, images, rows)
                files.append(file)
                shown.update(len(rows))
    for path in old:  # only now: they may be what was read
        if path not in files:
            path.unlink()
    return Packed(tuple(files), counts)


def _parquet(file: Path, splits: Splits, images: ImageSet, rows: range) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [("key", pa.string()), ("image", pa.binary()), ("label", pa.string())]
    if images.groups is not None:
        fields.append(("group", pa.string()))
    schema = pa.schema(fields)
    # Image files are compressed already; another layer would only cost time at each read.
    with pq.ParquetWriter(file, schema, compression="none", use_dictionary=["label"]) as writer:
        for first in range(rows.start, rows.stop, ROW_GROUP):
            part = range(first, min(first + ROW_GROUP, rows.stop))
            columns: dict[str, list[Any]] = {
                "key": [images.ids[i] for i in part],
                "image": [content_of(images, i)[0] for i in part],
                "label": [splits.class_names[images.labels[i]] for i in part],
            }
            if images.groups is not None:
                columns["group"] = [images.groups[i] for i in part]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=ROW_GROUP)


def _tar(file: Path, splits: Splits, images: ImageSet, rows: range) -> None:
    def members() -> Iterator[tuple[str, bytes]]:
        for i in rows:
            content, suffix = content_of(images, i)
            # A key ends at its first dot, so names of files would not do.
            yield f"{i:08d}.{suffix}", content
            yield f"{i:08d}.cls", splits.class_names[images.labels[i]].encode()

    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def content_of(images: ImageSet, i: int) -> tuple[bytes, str]:
    """The bytes of image i as a file, and the suffix of its kind. A file that is no image at all is refused by name."""
    if images.files is None or isinstance(images.files[i], Given):
        stream = io.BytesIO()
        images.image(i).save(stream, "PNG")
        return stream.getvalue(), "png"
    file = images.files[i]
    assert not isinstance(file, Given)
    try:
        content = file.read_bytes() if isinstance(file, Path) else file.read()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=images.ids[i]) from None
    suffix = next((s for sign, s in _SIGNS.items() if content.startswith(sign)), None)
    if suffix is None and content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        suffix = "webp"
    if suffix is None:
        raise DataError("not a JPEG, PNG, WebP, BMP or TIFF image", where=images.ids[i])
    return content, suffix
