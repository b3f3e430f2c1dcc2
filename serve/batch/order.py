"""An order of predictions and the parts that it is done in: decode ahead, predict in order."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Source
from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.layouts import images_to_predict
from calibrant.remote.storage import here
from calibrant.serve.engine.classifier import Classifier, load
from calibrant.serve.engine.pixels import Pixels

if TYPE_CHECKING:
    from PIL import Image

OnBad = Literal["fail", "skip"]
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
class Rows:
    """Predictions of some images, in their order."""

    ids: list[str]
    labels: NDArray[np.int64]
    logits: NDArray[np.float32]
    features: NDArray[np.float32] | None
    label_names: list[str | None] | None  # where some are no classes of the model


@dataclass(frozen=True)
class Part:
    """A span of images, done in another process."""

    rows: list[Rows]
    bad: list[Bad]
    error: Failure | None = None  # what ended it, where bad images end a run


@dataclass(frozen=True)
class Order:
    """What is to be predicted; enough for any process that sees the same files. An address of object storage is copied
    by each machine."""

    model: Path | str
    data: Path | str
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
        classifier = load(here(order.model), providers=providers, threads=threads)
        card = classifier.card
        images = images_to_predict(here(order.data), card.classes, split=order.split, former=card.former_classes)
        return cls(order, classifier, images, classifier.session.sha256())

    @property
    def fingerprint(self) -> str:
        """Of the model's content, and of the images' names and labels in their order."""
        digest = hashlib.sha256(self.sha256.encode())
        for row in described(self.images):
            digest.update(row)
        return digest.hexdigest()

    def run(self, pool: ThreadPoolExecutor) -> Run:
        return Run(self.classifier, self.images, self.order, pool)

    def part(self, span: Span, pool: ThreadPoolExecutor) -> Part:
        run, rows = self.run(pool), list[Rows]()
        try:
            rows.extend(run.over(span))
        except DataError as caught:
            where = None if caught.where is None else str(caught.where)
            return Part(rows, run.bad, Failure(caught.what, where, caught.fix))
        return Part(rows, run.bad)


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
    return Source(
        card.classes, card.prior.train, card.prior.absorbed, card.class_temperatures, model, outcome=card.outcome
    )


def own_logits(classifier: Classifier, deployed: NDArray[np.float32]) -> NDArray[np.float32]:
    """The model's own logits, or the calibrated ones without the prior term where the calibrator cannot be undone."""
    formula = classifier.formula
    raw = formula.raw(deployed)
    return (formula.calibrated(deployed) if raw is None else raw).astype(np.float32)


class Run:
    """One part: decode ahead, predict in order."""

    def __init__(self, classifier: Classifier, images: ImageSet, order: Order, pool: ThreadPoolExecutor) -> None:
        self.classifier, self.images, self.order, self.pool = classifier, images, order, pool
        self.bad: list[Bad] = []

    def over(self, span: Span) -> Iterator[Rows]:
        """Batch by batch, the images that can be read."""
        numbers: list[int] = []
        pixels: list[Pixels] = []
        for number, decoded in self._decoded(span):
            if isinstance(decoded, DataError):
                self._note(number, decoded)
                continue
            numbers.append(number)
            pixels.append(decoded)
            if len(numbers) == self.order.batch_size:
                yield self._predict(numbers, pixels)
                numbers, pixels = [], []
        if numbers:
            yield self._predict(numbers, pixels)

    def _decoded(self, span: Span) -> Iterator[tuple[int, Pixels | DataError]]:
        """In order, decoded at most four batches ahead, so that memory does not grow with the data."""
        ahead: deque[tuple[int, Future[Pixels | DataError]]] = deque()
        card = self.classifier.card
        for number, opened in self.images.in_order(*span):
            ahead.append((number, self.pool.submit(_decode, card, opened)))
            if len(ahead) >= 4 * self.order.batch_size:
                first, future = ahead.popleft()
                yield first, future.result()
        while ahead:
            first, future = ahead.popleft()
            yield first, future.result()

    def _note(self, number: int, error: DataError) -> None:
        id_, place = self.images.ids[number], self.images.place(number)
        if self.order.on_bad_image == "fail":
            # In a shard the id begins with the name of the shard.
            inside = place is not None and id_.startswith(f"{place.name}/")
            where = id_ if place is None else place.parent / id_ if inside else place
            raise DataError(error.what, where=where, fix="mend or remove it, or use --on-bad-image skip")
        self.bad.append(Bad(id_, error.what))

    def _predict(self, numbers: list[int], pixels: list[Pixels]) -> Rows:
        known = self.images
        outputs = self.classifier.outputs(np.stack(pixels), batch_size=self.order.batch_size)
        return Rows(
            [known.ids[i] for i in numbers],
            known.labels[numbers],
            own_logits(self.classifier, outputs["logits"]),
            np.asarray(outputs["features"], np.float32) if self.order.features else None,
            None if known.label_names is None else [known.label_names[i] for i in numbers],
        )


def _decode(card: ModelCard, opened: Callable[[], Image.Image]) -> Pixels | DataError:
    try:
        return card.preprocessing.pixels(opened())
    except DataError as error:
        return error


def described(images: ImageSet) -> Iterator[bytes]:
    names = images.label_names or (None,) * len(images)
    for id_, label, name in zip(images.ids, images.labels.tolist(), names, strict=True):
        yield f"{id_}\0{label}\n".encode() if name is None else f"{id_}\0{label}\0{name}\n".encode()
