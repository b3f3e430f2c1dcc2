"""`calibrant.export.adopt`: somebody else's ONNX classifier as a deployed file, proved to say the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrant.artifacts.foreign.feature_table import FeatureTable
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.artifacts.model_card import ModelCard, Prior, rows_preprocessing
from calibrant.errors import CheckFailed, ConfigError
from calibrant.export.adoption.body import ForeignBody, make_body
from calibrant.export.adoption.deployed import card_of, write
from calibrant.export.adoption.pictures import Pictures, given_rows
from calibrant.export.adoption.preprocess.declared import Flags, read_declared
from calibrant.export.adoption.preprocess.diagnosis import Diagnosis, candidates_of, diagnose, hint, with_resizes
from calibrant.export.adoption.proof import Proof
from calibrant.export.adoption.reading.foreign import Foreign
from calibrant.export.adoption.reading.found import RANDOM, Found, find
from calibrant.export.adoption.reading.input_side import ForeignInput, read_input
from calibrant.export.adoption.reading.original import Original
from calibrant.export.adoption.reading.output_kind import check_kind
from calibrant.export.graph.settings import checked_names
from calibrant.images.declared.declaration import Declared

log = logging.getLogger(__name__)
TOLD = 1e-3  # in a probability


@dataclass(frozen=True)
class Adoption:
    """The deployed file's card, and what was found and proved on the way."""

    card: ModelCard
    found: Found
    body: ForeignBody
    declared: Declared
    proof: Proof
    accuracy: float | None = None
    diagnosis: Diagnosis | None = None
    notes: tuple[str, ...] = ()


def adopt(
    path: str | Path,
    out: str | Path,
    *,
    classes: Sequence[str] | str | Path | None = None,
    preprocess: str | None = None,
    flags: Flags | None = None,
    size: tuple[int, int] | None = None,
    data: str | Path | None = None,
    output: str | None = None,
    output_kind: str | None = None,
    outcome: Outcome | None = None,
    fix_preprocess: bool = False,
    train_prior: Sequence[float] | None = None,
    name: str | None = None,
    description: str = "",
    author: str | None = None,
    licence: str | None = None,
) -> Adoption:
    """Writes `out`, a deployed file that says what the foreign file `path` says, and gives what was found.

    classes: names in the order of the outputs, or a file of them; needed where the file does not name them itself.
    outcome: independent where a picture may have several labels; told from sigmoids. preprocess: a
    preprocessor_config.json, a timm config, `timm:NAME` or `torchvision:NAME`; `flags` win over it. data: pictures in
    any layout; with labels they give accuracy and the diagnosis of the preprocessing, which `fix_preprocess` mends.
    """
    out = Path(out)
    check_kind(output_kind)
    foreign = Foreign.load(path)
    names = _names(foreign, classes)
    taken = read_input(foreign.model, wanted=size)
    if foreign.scales_by_batch and taken.batch is None:
        taken = replace(taken, batch=1)
    declared = _declared(foreign, taken, preprocess, flags, size)
    found = find(foreign, taken, declared, names, output=output, output_kind=output_kind, outcome=outcome)
    original = _original(found, len(names))
    tried = _Tried(declared, _told(found))
    if data is not None and taken.rows:
        tried.on_rows(given_rows(data, names, taken.width), original, found)
    elif data is not None:
        tried.on_pictures(Pictures.of(data, names, independent=found.independent), original, found, fix_preprocess)
    declared = tried.declared
    sets = {"random": taken.random(RANDOM, declared.preprocessing.size)}
    if tried.given is not None:
        sets["given"] = tried.given
    expected = {n: (x, original.of_pixels(x, declared)) for n, x in sets.items()}
    if found.floor is not None:
        moved = max(original.moved(x, declared) for x in sets.values())
        if moved > TOLD:
            tried.notes.append(
                f"a probability of none counts as {found.floor:.2g}, since there is no logarithm of 0: that moves the "
                f"file's answers by up to {moved:.2f} until it is calibrated (calibrate, recalibrate)"
            )
    train = None if train_prior is None else tuple(map(float, train_prior))
    for matrix in (True, False):
        body = make_body(
            foreign,
            taken,
            found.ending,
            found.seen,
            len(names),
            declared,
            floor=found.floor,
            matrix=matrix,
            independent=found.independent,
        )
        card = card_of(found, body, declared, names, name or Path(path).stem)
        card = replace(card, description=description, author=author, licence=licence, prior=Prior(train))
        try:
            card, proof = write(out, card, body, expected, found.kind, foreign.precision)
            break
        except CheckFailed as error:
            if body.weight is None:
                raise
            log.debug("with the matrix: %s", error)
            tried.notes.append(
                "the matrix that was found gives other answers (a rounding inside?), so the logits are taken"
            )
    return Adoption(card, found, body, declared, proof, tried.accuracy, tried.diagnosis, tuple(tried.notes))


@dataclass
class _Tried:
    """What the given pictures or rows say of the preprocessing, which they may put right."""

    declared: Declared
    notes: list[str]
    given: NDArray[Any] | None = None  # as the deployed file will be given them
    accuracy: float | None = None
    diagnosis: Diagnosis | None = None

    def on_rows(self, table: FeatureTable, original: Original, found: Found) -> None:
        self.given = table.features
        if found.kind != "label":
            self.accuracy = _accuracy(original, self.declared, table)

    def on_pictures(self, pictures: Pictures, original: Original, found: Found, fix: bool) -> None:
        if found.kind != "label" and pictures.labelled:
            self._diagnose(pictures, original, found, fix)
        elif found.kind != "label" and not found.independent:
            best, given = hint(original, self.declared, pictures.pixels(self.declared.preprocessing))
            if best != given:
                self.notes.append(
                    f"a hint, for want of labels: the network is surest of itself with {best}, not {given}"
                )
        self.given = pictures.pixels(self.declared.preprocessing)

    def _diagnose(self, pictures: Pictures, original: Original, found: Found, fix: bool) -> None:
        declared = self.declared
        diagnosis = diagnose(original, declared, pictures.pixels(declared.preprocessing), pictures.labels)
        if fix and not diagnosis.agrees:
            best = diagnosis.candidates[0].name
            fixed = candidates_of(declared, scaled_inside=found.taken.scaled_inside)[best]
            declared = replace(fixed, source=f"{declared.source}, put right by --fix-preprocess: {best}")
            diagnosis = replace(diagnosis, given=best)
        if not diagnosis.blind:
            diagnosis = with_resizes(diagnosis, original, declared, pictures.pixels, pictures.labels)
        self.declared, self.diagnosis, self.accuracy = declared, diagnosis, diagnosis.declared.accuracy


def _declared(
    foreign: Foreign, taken: ForeignInput, preprocess: str | None, flags: Flags | None, size: tuple[int, int] | None
) -> Declared:
    if taken.rows:
        declared = _nothing_done(taken, preprocess, flags)
    else:
        declared = (flags or Flags()).applied(read_declared(preprocess, taken.size or size))
    shape = taken.size or size or (None if preprocess is None else declared.preprocessing.size)
    if shape is None:
        raise ConfigError(
            "the graph leaves the size of its pictures open",
            where=foreign.path,
            fix="say it: --size 224, or --size 224x192",
        )
    return declared.with_size(shape)


def _names(foreign: Foreign, classes: Sequence[str] | str | Path | None) -> tuple[str, ...]:
    """As given, which must be the file's own where it has names and not numbers; else the file's own."""
    own = foreign.table.classes or foreign.named
    if classes is None:
        if own is None:
            raise ConfigError("does not name its classes", where=foreign.path, fix="give them: --classes names.txt")
        return checked_names(own)
    names = read_names(classes)
    if own is not None and not all(name.lstrip("-").isdigit() for name in own) and names != own:
        wrong = next((i for i, (a, b) in enumerate(zip(names, own, strict=False)) if a != b), min(len(names), len(own)))
        raise ConfigError(
            f"the file names its classes itself, and number {wrong} differs",
            where=foreign.path,
            fix="leave --classes out, or put it in this order: "
            + ", ".join(own[:8])
            + (", ..." if len(own) > 8 else ""),
        )
    return names


def _nothing_done(taken: ForeignInput, preprocess: str | None, flags: Flags | None) -> Declared:
    if preprocess is not None or (flags is not None and flags != Flags()):
        raise ConfigError("takes rows of numbers, not pictures", where="--preprocess", fix="leave it out")
    return Declared(rows_preprocessing(taken.width), source="nothing: rows go in as they are")


def _accuracy(original: Original, declared: Declared, table: FeatureTable) -> float | None:
    known = table.labels >= 0
    if not known.any():
        return None
    p = original.of_pixels(table.features[known], declared)
    return float((p.argmax(1) == table.labels[known]).mean())


def _original(found: Found, classes: int) -> Original:
    return Original.open(
        found.foreign.path,
        found.taken,
        found.output,
        found.kind,
        classes,
        precision=found.foreign.precision,
        independent=found.independent,
        floor=found.floor,
    )


def _told(found: Found) -> list[str]:
    told = []
    if found.foreign.scales_by_batch:
        told.append(
            "its int8 scales are taken from all pictures that come together, so that an answer would depend on its "
            "neighbours: it is kept at one picture at a time"
            if found.taken.batch == 1
            else f"its int8 scales are taken from the {found.taken.batch} pictures that come together, so an answer "
            "depends a little on its neighbours; a file of one picture at a time would not"
        )
    if not found.independent or found.kind != "sigmoid":
        return told
    return [
        *told,
        "one sigmoid a label: labels are independent, each has a probability of its own. If exactly one is true in "
        "every picture, --outcome exclusive makes a softmax of the same logits",
    ]


def read_names(classes: Sequence[str] | str | Path) -> tuple[str, ...]:
    """Class names, or a text file with one a line."""
    if isinstance(classes, str | Path):
        from calibrant.images.layout import lines_of

        classes = [line.strip() for line in lines_of(Path(classes)) if line.strip()]
    return checked_names(classes)
