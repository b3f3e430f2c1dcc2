"""The files that could be served in the place of one: as it is, quantized by ourselves, or given; and what each loses.

Pictures that a quantized file was fitted on judge no file. A candidate is taken only where the paired interval shows
that it loses no more than is allowed: what few pictures cannot rule out is refused as well, and said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.compare import Difference, compare
from calibrant.calibration.intervals.means import share_interval
from calibrant.errors import CalibrantError, ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import progress

MADE = ("fp32", "int8", "fp16")
FEWEST = 48  # pictures with labels, where a file is quantized; half of them are for that
MOST_FITTING, MOST_RANGES = 1024, 256  # pictures that quantizing takes, and of these for the ranges of activations
AT_A_TIME = 256  # pictures

Say = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """What a file may lose against the one that was given, as shares. `proven`: what cannot be told is refused too.

    `sets`: it must have prediction sets where that has them, or callers who ask for a coverage would be refused.
    """

    accuracy: float = 0.01
    ece: float = 0.02
    proven: bool = True
    sets: bool = True


@dataclass(frozen=True)
class Candidate:
    """`refused`: why it must not be served, where it must not."""

    name: str
    path: Path
    accuracy: tuple[float, float, float]  # with its 95 % interval
    differences: dict[str, Difference]  # from the given file on the same pictures; empty for itself
    ece: float
    refused: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "file": str(self.path), "accuracy": self.accuracy, "ece": self.ece,
            "differences": {k: d.to_dict() for k, d in self.differences.items()}, "refused": self.refused,
        }  # fmt: skip


class Pictures:
    """Held-out pictures with labels, as each file's own preprocessing makes them."""

    def __init__(self, images: ImageSet, most: int) -> None:
        drawn = np.random.default_rng(0).permutation(len(images))[:most]
        self._images, self._rows = images, np.sort(drawn)
        self._made: dict[Preprocessing, NDArray[np.uint8]] = {}
        self.labels = images.labels[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def parts(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places of those that a quantized file is fitted on, and of those that judge."""
        order = np.random.default_rng(1).permutation(len(self))
        count = min(MOST_FITTING, len(order) // 2)
        return np.sort(order[:count]), np.sort(order[count:])

    def pixels(self, preprocessing: Preprocessing) -> NDArray[np.uint8]:
        if preprocessing not in self._made:
            rows = progress(self._rows, what="decode", total=len(self), unit="img")
            self._made[preprocessing] = np.stack([preprocessing.pixels(self._images.image(int(i))) for i in rows])
        return self._made[preprocessing]


def candidates(
    model: Path,
    data: Path,
    out: Path,
    *,
    also: Sequence[Path] = (),
    precisions: Sequence[str] | None = None,
    most: int = 4000,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    say: Say = lambda line: None,
) -> tuple[list[Candidate], int]:
    """The given file first, then what was made of it and put into `out`, then `also`; and the pictures that judged.

    `precisions`: of MADE; without it int8, and fp16 where there is a GPU, as far as the file can be quantized.
    """
    from calibrant.export.quantization.quantize import held_out

    card = _card(model)
    pictures = Pictures(held_out(data, card.classes, former=card.former_classes), most)
    given = str(card.precision.get("dtype", "float32"))
    wanted = tuple(precisions or (_usual() if given == "float32" else ()))
    files = {"fp32" if given == "float32" else given: model}
    judging = np.arange(len(pictures))
    if set(wanted) - {"fp32"}:
        if len(pictures) < FEWEST:
            raise DataError(
                f"{len(pictures)} labelled pictures are too few to quantize and to judge by",
                where=data,
                fix=f"give {FEWEST} or more, or --precision fp32",
            )
        fitting, judging = pictures.parts()
        for name in wanted:
            if name == "fp32":
                continue
            say(f"{name}: quantizing by {len(fitting)} pictures, which may take minutes")
            try:
                files[name] = _quantized(model, card, out, name, pictures, fitting)
            except CalibrantError as error:
                if precisions is not None:
                    raise
                say(f"{name}: left out, {error}")
        if len(files) == 1:  # nothing was fitted
            judging = np.arange(len(pictures))
    for path in also:
        if _card(path).classes != card.classes:
            raise ConfigError(f"its classes are not those of {model.name}", where=path)
        files[_new_name(path.stem, files)] = path
    return judged(files, pictures, judging, limits), len(judging)


def judged(files: dict[str, Path], pictures: Pictures, rows: NDArray[np.intp], limits: Limits) -> list[Candidate]:
    """Each against the first."""
    from calibrant.calibration.evaluation import evaluate
    from calibrant.serve.engine.classifier import load

    labels = pictures.labels[rows]
    found: list[Candidate] = []
    reference: NDArray[np.float64] | None = None
    sets = limits.sets and _has_sets(next(iter(files.values())))
    for name, path in files.items():
        classifier = load(path)
        pixels = pictures.pixels(classifier.card.preprocessing)
        steps = progress(range(0, len(rows), AT_A_TIME), what=f"judge {name}", unit="batch")
        parts = [classifier.predict(pixels[rows[i : i + AT_A_TIME]]).probabilities for i in steps]
        probs = np.concatenate(parts).astype(np.float64)
        metrics = evaluate(probs, labels).metrics
        share = metrics["accuracy"].value
        differences = {} if reference is None else compare(reference, probs, labels)
        reference = probs if reference is None else reference
        refused = refusal(differences, limits, len(rows)) if differences else None
        if refused is None and sets and not _has_sets(path):
            refused = "it has no prediction sets, and callers may ask for them; fit some, or allow --without-sets"
        accuracy = (share, *share_interval(share, len(rows)))
        found.append(Candidate(name, path, accuracy, differences, metrics["ece"].value, refused))
    return found


def refusal(differences: dict[str, Difference], limits: Limits, rows: int) -> str | None:
    """Why a file with these differences from the given one must not be served."""
    for key, limit, worse, option in (
        ("accuracy", limits.accuracy, -1.0, "--max-accuracy-loss"),
        ("ece", limits.ece, 1.0, "--max-ece-gain"),
    ):
        d = differences[key]
        what = "accuracy" if key == "accuracy" else "ECE"
        if d.low is None or d.high is None:
            if limits.proven:
                return f"too few of {rows} pictures are wrong to tell whether its {what} holds"
            continue
        least, most = sorted((worse * d.low, worse * d.high))
        seen = f"{what} {100 * d.difference:+.2f} points ({100 * d.low:+.2f} .. {100 * d.high:+.2f})"
        if least > limit:
            return f"{seen}, beyond {100 * limit:g}"
        if most > limit and limits.proven:
            more = _enough(worse * d.difference, most, limit, rows)
            how = f"about {more:,} would, or allow more with {option}" if more else f"allow more with {option}"
            return f"{seen}: {rows:,} pictures cannot rule out a loss of {100 * limit:g}; {how}"
    return None


def _enough(loss: float, most: float, limit: float, rows: int) -> int | None:
    """Pictures by which the same loss would be shown to lie within the limit; None where it does not."""
    return None if loss >= limit else 100 * (1 + int(rows * ((most - loss) / (limit - loss)) ** 2 / 100))


def _has_sets(path: Path) -> bool:
    card = OnnxFile.open(path).card()
    return bool(card.conformal or (card.calibrator or {}).get("conformal"))


def _usual() -> tuple[str, ...]:
    from calibrant.runtime import runtime
    from calibrant.serve.engine.providers import choose

    provider = choose(None, runtime().get_available_providers())[0][0]
    return ("fp32", "int8", "fp16") if provider == "CUDAExecutionProvider" else ("fp32", "int8")


def _card(path: Path) -> ModelCard:
    card = OnnxFile.open(path).card()
    if not card.input.pictures:
        raise ConfigError("takes rows of numbers, and only networks of pictures are tuned", where=path)
    return card


def _quantized(model: Path, card: ModelCard, out: Path, name: str, pictures: Pictures, rows: NDArray[np.intp]) -> Path:
    from calibrant.export.quantization.candidates import Data
    from calibrant.export.quantization.quantize import quantize

    pixels = pictures.pixels(card.preprocessing)[rows]
    images: NDArray[Any] = pixels if card.input.dtype == "uint8" else card.preprocessing.normalise(pixels)
    count = min(MOST_RANGES, len(rows) // 3)
    order = np.random.default_rng(2).permutation(len(rows))
    some, rest = np.sort(order[:count]), np.sort(order[count:])
    path = out / f"{model.stem}-{name}.onnx"
    out.mkdir(parents=True, exist_ok=True)
    quantize(
        model,
        path,
        Data(images[some], images[rest], pictures.labels[rows][rest]),
        method="fp16" if name == "fp16" else "auto",
    )
    return path


def _new_name(stem: str, taken: dict[str, Path]) -> str:
    names = [stem, *(f"{stem} ({n})" for n in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)
