"""`calibrant predict MODEL.onnx`: a folder of images, or shards of them, through a deployed file.

Threads decode while the session runs, answers come in the order of the images, and finished parts are kept beside the
output until all are there, so that an interrupted run goes on where it was when it is started again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant import atomic
from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import PredictionsFile, PredictionsWriter, Source
from calibrant.errors import DataError, ModelError
from calibrant.images.image_set import ImageSet
from calibrant.images.layouts import images_to_predict
from calibrant.progress import bar
from calibrant.serve.engine.classifier import Classifier, load
from calibrant.serve.engine.pixels import Pixels
from calibrant.serve.engine.providers import available_cores

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger(__name__)

OnBad = Literal["fail", "skip"]
Engine = Literal["calibrant", "ray"]
PART = 4096  # images; what an interruption can cost
RAY_PART = 512  # a part is in memory as a whole there, and they are shared out
Span = tuple[int, int]  # from this image up to that one


@dataclass(frozen=True)
class Bad:
    id: str
    why: str


@dataclass(frozen=True)
class Failure:
    """A DataError on its way between processes."""

    what: str
    where: str | None
    fix: str | None


@dataclass(frozen=True)
class Part:
    """The predictions of a span of images."""

    ids: list[str]
    labels: NDArray[np.int64]
    logits: NDArray[np.float32]
    features: NDArray[np.float32] | None
    bad: list[Bad]
    error: Failure | None = None  # what ended it, where bad images end a run
    label_names: list[str | None] | None = None  # where some are no classes of the model


@dataclass(frozen=True)
class Order:
    """What is to be predicted; enough for any process that sees the same files."""

    model: Path
    data: Path
    split: str
    batch_size: int
    features: bool
    on_bad_image: OnBad


@dataclass(frozen=True)
class Workplace:
    """An order with its model loaded and its images listed."""

    order: Order
    classifier: Classifier
    images: ImageSet
    sha256: str

    @classmethod
    def of(cls, order: Order, *, threads: int | None, providers: Sequence[str] | None = None) -> Workplace:
        classifier = load(order.model, providers=providers, threads=threads)
        images = images_to_predict(order.data, classifier.class_names, split=order.split)
        return cls(order, classifier, images, classifier.session.sha256())

    @property
    def fingerprint(self) -> str:
        """Of the model's content, and of the images' names and labels in their order."""
        digest = hashlib.sha256(self.sha256.encode())
        for row in _described(self.images):
            digest.update(row)
        return digest.hexdigest()

    def run(self, pool: ThreadPoolExecutor) -> _Run:
        order = self.order
        return _Run(self.classifier, pool, order.batch_size, order.on_bad_image, order.features)

    def part(self, span: Span, pool: ThreadPoolExecutor) -> Part:
        run, error = self.run(pool), None
        rows: list[int] = []
        logits = [np.zeros((0, len(self.classifier.class_names)), np.float32)]
        features: list[NDArray[np.float32]] = []
        try:
            for some, answers, feats in run.over(self.images, span):
                rows += some
                logits.append(answers)
                features += [] if feats is None else [feats]
        except DataError as caught:
            error = Failure(caught.what, None if caught.where is None else str(caught.where), caught.fix)
        known = self.images
        return Part(
            [known.ids[i] for i in rows],
            known.labels[rows],
            np.concatenate(logits),
            np.concatenate(features) if features else None,
            run.bad,
            error,
            None if known.label_names is None else [known.label_names[i] for i in rows],
        )


def predict_model(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    split: str = "test",
    batch_size: int | None = None,
    features: bool = False,
    on_bad_image: OnBad = "fail",
    workers: int | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    part: int | None = None,
    engine: Engine = "calibrant",
    actors: int | None = None,
) -> Path:
    """Writes the predictions of a deployed file for images in any layout that training reads; gives the file.

    The logits written are the model's own, so that a calibrator can be fitted on them: the prior term is always taken
    off, and so is a calibrator that is a diagonal map. Where it is another map its outcome is written, and
    `Source.model["applied"]` names it. Labels that are no classes of the model stand in the column `label_name`. Images
    that cannot be read stop the run by name, or are left out and listed in `<out>.bad-images.txt`.

    `engine="ray"` shares the parts out among `actors` processes of Ray, on one machine or many.
    """
    out = Path(out)
    order = Order(Path(model), Path(data), split, batch_size or 32, features, on_bad_image)
    if engine == "ray":  # whose processes have working directories of their own
        order = replace(order, model=order.model.resolve(), data=order.data.resolve())
    work = Workplace.of(order, threads=threads, providers=providers)
    classifier, images, sha256 = work.classifier, work.images, work.sha256
    part = part or (RAY_PART if engine == "ray" else PART)
    total = len(images)
    if features and "features" not in classifier.session.outputs:
        raise ModelError("has no output `features`", where=model, fix="export it with --features")
    source = source_of(classifier)
    source = replace(source, model={**source.model, "onnx_sha256": sha256})
    folder = out.with_name(out.name + ".parts")
    _resume(folder, _key(sha256, images, split, features, on_bad_image, part))
    spans = [(start, min(start + part, total)) for start in range(0, total, part)]
    paths = {span: folder / f"part-{number:06d}.parquet" for number, span in enumerate(spans)}
    shown = bar(what=f"predict {split}", total=total, unit="img")
    shown.update(sum(stop - start for start, stop in spans if paths[start, stop].exists()))
    spans_left = [span for span in spans if not paths[span].exists()]
    if engine == "ray":
        from calibrant.serve.batch.ray_predict import predict_spans

        def keep(span: Span, found: Part) -> None:
            _write_part(paths[span], source, found, split)
            shown.update(span[1] - span[0])

        predict_spans(order, work.fingerprint, spans_left, actors, keep=keep)
    else:
        with ThreadPoolExecutor(workers or available_cores(), "decode") as pool:
            for start, stop in spans_left:
                run, path = work.run(pool), paths[start, stop]
                with PredictionsWriter(path, source) as writer:
                    for rows, logits, feats in run.over(images, (start, stop)):
                        names = None if images.label_names is None else [images.label_names[i] for i in rows]
                        writer.append(
                            [images.ids[i] for i in rows],
                            images.labels[rows],
                            logits,
                            features=feats,
                            split=split,
                            label_names=names,
                        )
                        shown.update(len(rows))
                    _write_bad(path, run.bad)
    shown.close()
    bad = [Bad(**entry) for path in paths.values() for entry in json.loads(_listing(path).read_text())]
    _join(folder, out, source, features=features)
    _list_bad(out, bad, total)
    return out


def _write_part(path: Path, source: Source, found: Part, split: str) -> None:
    with PredictionsWriter(path, source) as writer:
        if found.ids:
            writer.append(
                found.ids,
                found.labels,
                found.logits,
                features=found.features,
                split=split,
                label_names=found.label_names,
            )
        _write_bad(path, found.bad)


def _listing(path: Path) -> Path:
    return path.with_suffix(".bad.json")


def _write_bad(path: Path, bad: Sequence[Bad]) -> None:
    """Before the part takes its name: a part without its list would be taken as complete."""
    atomic.write_json(_listing(path), [b.__dict__ for b in bad])


def source_of(classifier: Classifier) -> Source:
    """What the predictions file says about the model, in the words of a training run's own predictions."""
    card = classifier.card
    model: dict[str, Any] = {
        "name": card.source.get("model", card.name),
        "sha256": card.source.get("checkpoint_sha256", ""),
        "run": card.source.get("run", ""),
        "deployed": card.name,
    }
    if classifier.formula.scale is None and card.calibrator is not None:
        model["applied"] = {"calibrator": dict(card.calibrator)}
    return Source(card.classes, card.prior.train, card.prior.absorbed, card.class_temperatures, model)


def own_logits(classifier: Classifier, deployed: NDArray[np.float32]) -> NDArray[np.float32]:
    """The model's own logits, or the calibrated ones without the prior term where the calibrator cannot be undone."""
    formula = classifier.formula
    raw = formula.raw(deployed)
    return (formula.calibrated(deployed) if raw is None else raw).astype(np.float32)


class _Run:
    """One part: decode ahead, predict in order."""

    def __init__(
        self, classifier: Classifier, pool: ThreadPoolExecutor, batch: int, on_bad: OnBad, features: bool
    ) -> None:
        self.classifier, self.pool, self.batch, self.on_bad, self.features = classifier, pool, batch, on_bad, features
        self.bad: list[Bad] = []

    def over(
        self, images: ImageSet, span: Span
    ) -> Iterator[tuple[list[int], NDArray[np.float32], NDArray[np.float32] | None]]:
        """(rows, logits, features) of the images that can be read, in their order."""
        rows: list[int] = []
        pixels: list[Pixels] = []
        for row, decoded in self._decoded(images, span):
            if isinstance(decoded, DataError):
                self._note(images, row, decoded)
                continue
            rows.append(row)
            pixels.append(decoded)
            if len(rows) == self.batch:
                yield self._predict(rows, pixels)
                rows, pixels = [], []
        if rows:
            yield self._predict(rows, pixels)

    def _decoded(self, images: ImageSet, span: Span) -> Iterator[tuple[int, Pixels | DataError]]:
        """In order, decoded at most four batches ahead, so that memory does not grow with the data."""
        ahead: deque[tuple[int, Future[Pixels | DataError]]] = deque()
        card = self.classifier.card
        for row, opened in images.in_order(*span):
            ahead.append((row, self.pool.submit(_decode, card, opened)))
            if len(ahead) >= 4 * self.batch:
                first, future = ahead.popleft()
                yield first, future.result()
        while ahead:
            first, future = ahead.popleft()
            yield first, future.result()

    def _note(self, images: ImageSet, row: int, error: DataError) -> None:
        id_, place = images.ids[row], images.place(row)
        if self.on_bad == "fail":
            # In a shard the id begins with the name of the shard.
            inside = place is not None and id_.startswith(f"{place.name}/")
            where = id_ if place is None else place.parent / id_ if inside else place
            raise DataError(error.what, where=where, fix="mend or remove it, or use --on-bad-image skip")
        self.bad.append(Bad(id_, error.what))

    def _predict(
        self, rows: list[int], pixels: list[Pixels]
    ) -> tuple[list[int], NDArray[np.float32], NDArray[np.float32] | None]:
        outputs = self.classifier.outputs(np.stack(pixels), batch_size=self.batch)
        features = np.asarray(outputs["features"], np.float32) if self.features else None
        return rows, own_logits(self.classifier, outputs["logits"]), features


def _decode(card: ModelCard, opened: Callable[[], Image.Image]) -> Pixels | DataError:
    try:
        return card.preprocessing.pixels(opened())
    except DataError as error:
        return error


def _described(images: ImageSet) -> Iterator[bytes]:
    names = images.label_names or (None,) * len(images)
    for id_, label, name in zip(images.ids, images.labels.tolist(), names, strict=True):
        yield f"{id_}\0{label}\n".encode() if name is None else f"{id_}\0{label}\0{name}\n".encode()


def _key(sha256: str, images: ImageSet, *rest: object) -> str:
    """What a part depends on; parts of anything else are thrown away."""
    digest = hashlib.sha256(f"{sha256} {rest}".encode())
    path = None
    for i, row in enumerate(_described(images)):
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


def _join(folder: Path, out: Path, source: Source, *, features: bool) -> None:
    with PredictionsWriter(out, source) as writer:
        for path in sorted(folder.glob("part-*.parquet")):
            for rows in PredictionsFile.open(path).batches(features=features):
                writer.append(
                    rows.ids,
                    rows.labels,
                    rows.logits,
                    features=rows.features,
                    split=rows.split,
                    label_names=rows.label_names,
                )
    shutil.rmtree(folder)


def _line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t").encode(errors="backslashreplace").decode()


def _list_bad(out: Path, bad: Sequence[Bad], total: int) -> None:
    listing = out.with_name(out.name + ".bad-images.txt")
    listing.unlink(missing_ok=True)
    if bad:
        log.warning("%d of %d images could not be read; they are listed in %s", len(bad), total, listing)
        atomic.write_text(listing, "".join(f"{_line(b.id)}\t{_line(b.why)}\n" for b in bad))
