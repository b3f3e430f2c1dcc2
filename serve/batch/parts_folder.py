"""The folder beside the output in which finished parts wait for the others, so that nothing is done twice."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant import atomic
from calibrant.artifacts.predictions import PredictionsFile, PredictionsWriter, Source
from calibrant.images.image_set import ImageSet
from calibrant.serve.batch.order import Bad, Rows, Span, described

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartsFolder:
    folder: Path
    source: Source
    split: str
    paths: dict[Span, Path]

    @classmethod
    def beside(cls, out: Path, source: Source, *, split: str, total: int, part: int, key: str) -> PartsFolder:
        """As an interrupted run left it, where that did the same (`key`); else empty."""
        folder = out.with_name(out.name + ".parts")
        _resume(folder, key)
        spans = [(start, min(start + part, total)) for start in range(0, total, part)]
        return cls(
            folder, source, split, {span: folder / f"part-{number:06d}.parquet" for number, span in enumerate(spans)}
        )

    @property
    def left(self) -> list[Span]:
        return [span for span, path in self.paths.items() if not path.exists()]

    @contextmanager
    def writing(self, span: Span, bad: Sequence[Bad]) -> Iterator[Callable[[Rows], None]]:
        """What takes the rows of a part. `bad` may grow until they are all there."""
        path = self.paths[span]
        with PredictionsWriter(path, self.source) as writer:

            def append(rows: Rows) -> None:
                writer.append(
                    rows.ids,
                    rows.labels,
                    rows.logits,
                    features=rows.features,
                    split=self.split,
                    label_names=rows.label_names,
                )

            yield append
            # Before the part takes its name: a part without its list would be taken as complete.
            atomic.write_json(_listing(path), [b.__dict__ for b in bad])

    def bad(self) -> list[Bad]:
        return [Bad(**entry) for path in self.paths.values() for entry in json.loads(_listing(path).read_text())]

    def join(self, out: Path, *, features: bool) -> None:
        """All parts as one file; the folder goes."""
        with PredictionsWriter(out, self.source) as writer:
            for path in self.paths.values():
                for rows in PredictionsFile.open(path).batches(features=features):
                    writer.append(
                        rows.ids,
                        rows.labels,
                        rows.logits,
                        features=rows.features,
                        split=rows.split,
                        label_names=rows.label_names,
                    )
        shutil.rmtree(self.folder)


def key_of(sha256: str, images: ImageSet, *rest: object) -> str:
    """What a part depends on; parts of anything else are thrown away."""
    digest = hashlib.sha256(f"{sha256} {rest}".encode())
    path = None
    for i, row in enumerate(described(images)):
        place = images.place(i)
        if place is not None and place != path:  # once for each shard
            path = place
            try:
                info = path.stat()
                digest.update(f"{info.st_size}\0{info.st_mtime_ns}\0".encode())
            except OSError:  # a link to nowhere; reading it will say so
                digest.update(b"missing")
        digest.update(row)
    if images.pixels is not None:
        digest.update(np.ascontiguousarray(images.pixels).data)
    return digest.hexdigest()


def _listing(path: Path) -> Path:
    return path.with_suffix(".bad.json")


def _resume(folder: Path, key: str) -> None:
    stamp = folder / "key.txt"
    if folder.exists() and (not stamp.exists() or stamp.read_text() != key):
        shutil.rmtree(folder)
    if stamp.exists():
        done = len(list(folder.glob("*.parquet")))
        log.info("%s: going on after %d finished part(s)", folder, done)
        return
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(stamp, key)
