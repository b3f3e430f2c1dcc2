"""Images in the rows of Parquet files: one at a time in any order, or many in theirs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from calibrant.errors import DataError

KEPT_BYTES = 64 << 20  # of row groups, a listing and process
_ROWS_AT_ONCE = 64  # of a stream; a row group may be larger than memory


class RowGroups:
    """The row groups of a listing that were read last, and its open files. A row group is read as a whole, so shards to
    be read in random order want small ones. Reading is under a lock: Arrow's reader is not for several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, Any] = {}
        self._kept: OrderedDict[tuple[Path, int], Any] = OrderedDict()

    def __reduce__(self) -> tuple[type[RowGroups], tuple[()]]:
        return RowGroups, ()  # another process opens the files itself

    def get(self, path: Path, group: int, column: str) -> Any:
        with self._lock:
            found = self._kept.get((path, group))
            if found is None:
                found = self._read(path, group, column)
                self._kept[path, group] = found
                while len(self._kept) > 1 and sum(v.nbytes for v in self._kept.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end((path, group))
            return found

    def _read(self, path: Path, group: int, column: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if path not in self._files:
                self._files[path] = pq.ParquetFile(path, memory_map=True)
            # No threads of Arrow's own: loader workers are forks, and a pool does not survive one.
            values = self._files[path].read_row_group(group, columns=[column], use_threads=False).column(0)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"row group {group} cannot be read ({first_line(error)})", where=path) from None
        values = values.combine_chunks()
        return values.field("bytes") if "." in column else values


@dataclass(frozen=True, eq=False)
class ParquetShard:
    """A file of images."""

    path: Path
    column: str  # image, or image.bytes
    sizes: tuple[int, ...]  # rows of each row group
    kept: RowGroups

    def stream(self, images: Sequence[ParquetImage]) -> Iterator[Callable[[], bytes]]:
        """What gives the bytes of these, which are in order; row groups without any of them are not read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted: dict[int, set[int]] = {}
        for image in images:
            wanted.setdefault(image.group, set()).add(image.row)
        try:
            with pq.ParquetFile(self.path) as file:
                for group, rows in sorted(wanted.items()):
                    row = 0
                    for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[self.column]):
                        values = batch.column(0).field("bytes") if "." in self.column else batch.column(0)
                        for value in values:
                            if row in rows:
                                yield partial(_content, value, self.path)
                            row += 1
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"cannot be read any further ({first_line(error)})", where=self.path) from None


@dataclass(frozen=True, slots=True)  # there may be millions of them
class ParquetImage:
    """An image in a row of a Parquet file."""

    shard: ParquetShard = field(repr=False)
    group: int
    row: int  # in its group

    @property
    def path(self) -> Path:
        return self.shard.path

    def read(self) -> bytes:
        values = self.shard.kept.get(self.shard.path, self.group, self.shard.column)
        return _content(values[self.row], self.shard.path)


def _content(value: Any, path: Path) -> bytes:
    """A binary scalar of Arrow is copied only here, in the thread that decodes."""
    content = value.as_py()
    if content is None:
        raise DataError("has no bytes in its row", where=path)
    return bytes(content)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]
