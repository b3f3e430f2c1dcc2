"""`calibrant.export.adopt`: somebody else's ONNX classifier as a deployed file, proved to say the same."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._version import __version__
from calibrant.artifacts.foreign.feature_table import FeatureTable
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.artifacts.model_card import InputSpec, ModelCard, Prior, rows_preprocessing
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import CheckFailed, ConfigError, DataError, ModelError, did_you_mean
from calibrant.export.adoption.body import ForeignBody, Seen, make_body
from calibrant.export.adoption.ending import RANK, Ending, Walk
from calibrant.export.adoption.foreign import Foreign
from calibrant.export.adoption.input_side import ForeignInput, read_input
from calibrant.export.adoption.original import Array, Original, level_of
from calibrant.export.adoption.output_kind import agreed, check_kind, floor_of, kind_of_numbers
from calibrant.export.adoption.pictures import Pictures, given_rows
from calibrant.export.adoption.preprocess.declared import Flags, read_declared
from calibrant.export.adoption.preprocess.diagnosis import Diagnosis, candidates_of, diagnose, hint, with_resizes
from calibrant.export.adoption.proof import Proof, prove, require
from calibrant.export.adoption.values import near_the_end, run_rows, run_values
from calibrant.export.checks.golden import with_golden_rows
from calibrant.export.checks.parity import session
from calibrant.export.graph.assemble import build_tail, write_deployed
from calibrant.export.graph.head import Graph
from calibrant.export.graph.saving import save
from calibrant.export.graph.settings import checked_names
from calibrant.images.declared.declaration import Declared

log = logging.getLogger(__name__)
RANDOM = 16


@dataclass(frozen=True)
class Found:
    """What a foreign file was seen to be."""

    foreign: Foreign
    taken: ForeignInput
    output: str  # in the file
    kind: str
    ending: Ending
    seen: Seen
    floor: float | None  # of probabilities whose logarithm stands in for logits
    independent: bool = False  # labels do not exclude one another


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
    declared = (
        _nothing_done(taken, preprocess, flags)
        if taken.rows
        else (flags or Flags()).applied(read_declared(preprocess, taken.size or size))
    )
    shape = taken.size or size or (None if preprocess is None else declared.preprocessing.size)
    if shape is None:
        raise ConfigError(
            "the graph leaves the size of its pictures open", where=path, fix="say it: --size 224, or --size 224x192"
        )
    declared = declared.with_size(shape)
    found = find(foreign, taken, declared, names, output=output, output_kind=output_kind, outcome=outcome)
    original = Original.open(
        path,
        taken,
        found.output,
        found.kind,
        len(names),
        precision=foreign.precision,
        independent=found.independent,
        floor=found.floor,
    )
    notes, diagnosis, accuracy = _told(found), None, None
    sets: dict[str, NDArray[Any]] = {"random": taken.random(RANDOM, shape)}
    pictures = None
    if data is not None and taken.rows:
        table = given_rows(data, names, taken.width)
        sets["given"] = table.features
        accuracy = _accuracy(original, declared, table) if found.kind != "label" else None
    elif data is not None:
        pictures = Pictures.of(data, names, independent=found.independent)
    if pictures is not None and found.kind != "label":
        pixels = pictures.pixels(declared.preprocessing)
        if pictures.labelled:
            diagnosis = diagnose(original, declared, pixels, pictures.labels)
            if fix_preprocess and not diagnosis.agrees:
                best = diagnosis.candidates[0].name
                fixed = candidates_of(declared, scaled_inside=taken.scaled_inside)[best]
                declared = replace(fixed, source=f"{declared.source}, put right by --fix-preprocess: {best}")
                diagnosis = replace(diagnosis, given=best)
            if not diagnosis.blind:
                diagnosis = with_resizes(diagnosis, original, declared, pictures.pixels, pictures.labels)
            accuracy = diagnosis.declared.accuracy
        elif not found.independent:
            best, given = hint(original, declared, pixels)
            if best != given:
                notes.append(f"a hint, for want of labels: the network is surest of itself with {best}, not {given}")
    if pictures is not None:
        sets["given"] = pictures.pixels(declared.preprocessing)
    expected = {n: (x, original.of_pixels(x, declared)) for n, x in sets.items()}
    train = None if train_prior is None else tuple(map(float, train_prior))
    for matrix in (True, False):
        body = make_body(
            foreign, taken, found.ending, found.seen, len(names), declared, floor=found.floor, matrix=matrix
        )
        card = _card(found, body, declared, names, name or Path(path).stem)
        card = replace(card, description=description, author=author, licence=licence, prior=Prior(train))
        try:
            card, proof = write(out, card, body, expected, found.kind, foreign.precision)
            break
        except CheckFailed as error:
            if body.weight is None:
                raise
            log.debug("with the matrix: %s", error)
            notes.append("the matrix that was found gives other answers (a rounding inside?), so the logits are taken")
    return Adoption(card, found, body, declared, proof, accuracy, diagnosis, tuple(notes))


def _names(foreign: Foreign, classes: Sequence[str] | str | Path | None) -> tuple[str, ...]:
    """As given, which must be the file's own where it has names and not numbers; else the file's own."""
    own = foreign.table.classes
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


def _told(found: Found) -> list[str]:
    if not found.independent or found.kind != "sigmoid":
        return []
    return [
        "one sigmoid a label: labels are independent, each has a probability of its own. If exactly one is true in "
        "every picture, --outcome exclusive makes a softmax of the same logits"
    ]


def read_names(classes: Sequence[str] | str | Path) -> tuple[str, ...]:
    """Class names, or a text file with one a line."""
    if isinstance(classes, str | Path):
        from calibrant.images.layout import lines_of

        classes = [line.strip() for line in lines_of(Path(classes)) if line.strip()]
    return checked_names(classes)


def find(
    foreign: Foreign,
    taken: ForeignInput,
    declared: Declared,
    names: Sequence[str],
    *,
    output: str | None = None,
    output_kind: str | None = None,
    outcome: Outcome | None = None,
) -> Found:
    """Which output to take, what it is, and where the logits behind it are."""
    model, classes = foreign.model, len(names)
    graph = Graph(model)
    inside = {before: now for now, before in foreign.outputs.items()}
    if output is not None and output not in inside:
        raise ConfigError(f'has no output "{output}"', where=foreign.path, fix=did_you_mean(output, inside))
    pixels = taken.random(RANDOM, declared.preprocessing.size)
    rows = taken.feed(pixels, declared)
    near = near_the_end(graph, list(foreign.outputs))
    few = taken.batch or 2
    feed = np.concatenate([rows] * -(-few // len(rows)))[:few]
    arrays = run_values(model, near, {taken.name: feed})
    per_row = {n: a for n, a in arrays.items() if a.ndim > 0 and len(a) == few}
    walk = Walk(graph, per_row, foreign.opset)
    endings = {o: walk.of(o) for o in foreign.outputs if output is None or o == inside[output]}
    fitting = {o: e for o, e in endings.items() if _columns(per_row, e.logits) in _allowed(classes)}
    numbers = {o: e for o, e in fitting.items() if per_row[e.logits].dtype.kind == "f"}
    fitting = numbers or fitting  # labels of two classes are one column too
    if not fitting:
        raise ModelError(
            _no_output(endings, per_row, classes),
            where=foreign.path,
            fix="give as many class names as the output has columns, in their order, or choose another with --output",
        )
    chosen = _choose(foreign, fitting, per_row)
    ending, told = fitting[chosen], foreign.outputs[chosen]
    seen, floor = Seen(feed, per_row), None
    values = run_rows(
        session(foreign.path, level=level_of(foreign.precision)), taken.name, rows, [told], batch=taken.batch
    )[told]
    if output_kind is None and taken.rows and ending.kind == "logits" and not ending.chosen:
        kind = kind_of_numbers(values, foreign.precision)  # forests and neighbours vote: no operator says so
        kind = "margin" if foreign.table.margin and kind == "logits" else kind
    elif output_kind is None:
        kind = agreed(told, ending, values, foreign.precision)
    else:
        kind = "label" if ending.chosen else output_kind
        if ending.kind != output_kind:  # what a person says stands; nothing is walked through that says otherwise
            ending = Ending("logits", chosen)
    independent = outcome == "independent"
    if kind == "sigmoid" and values[0].size > 1 and outcome is None:
        independent = True
    if independent and kind not in ("logits", "sigmoid"):
        raise ModelError(
            f'output "{told}" holds {kind}: of independent labels, logits or sigmoids are read', where=foreign.path
        )
    if kind == "label" and values.dtype.kind not in "iu":
        raise ModelError(
            f'output "{told}" holds the best few scores and no output says whose they are',
            where=foreign.path,
            fix="export the network with all its scores, or with their labels too",
        )
    if ending.kind == "logits" and kind in ("probabilities", "percent", "sigmoid"):
        if kind == "sigmoid" and values[0].size > 1:
            raise ModelError("its sigmoid is not in the graph as such, so there are no logits", where=foreign.path)
        floor = floor_of(values)
    if kind == "sigmoid" and not independent and values[0].size == 1:
        kind = "probabilities"  # of the second class
    return Found(foreign, taken, told, kind, ending, seen, floor, independent)


def _allowed(classes: int) -> tuple[int, ...]:
    return (classes, 1) if classes == 2 else (classes,)


def _columns(arrays: dict[str, NDArray[Any]], value: str) -> int:
    array = arrays.get(value)
    return -1 if array is None else int(np.asarray(array[0]).size)


def _no_output(endings: dict[str, Ending], arrays: dict[str, NDArray[Any]], classes: int) -> str:
    told = ", ".join(
        f'"{name}" {list(arrays[e.logits].shape[1:]) if e.logits in arrays else "?"}' for name, e in endings.items()
    )
    return f"{classes} class names, but no output has {classes} columns; it has {told}"


def _choose(foreign: Foreign, fitting: dict[str, Ending], arrays: dict[str, NDArray[Any]]) -> str:
    """Logits before log-softmax before softmax before sigmoid, never the first by position."""

    def place(o: str) -> tuple[bool, int, bool]:
        labels = o in arrays and arrays[o].dtype.kind in "iu"
        return fitting[o].chosen, RANK[fitting[o].kind], fitting[o].chosen and not labels

    order = sorted(fitting, key=place)
    best = fitting[order[0]]
    rivals = [o for o in order if (fitting[o].chosen, fitting[o].kind) == (best.chosen, best.kind)]
    if len({fitting[o].logits for o in rivals}) == 1:
        return order[0]
    named = [o for o in rivals if "logit" in foreign.outputs[o].lower()]
    if len(named) == 1:
        return named[0]
    raise ModelError(
        "has several outputs that may be the classes: " + ", ".join(foreign.outputs[o] for o in rivals),
        where=foreign.path,
        fix="choose one with --output",
    )


def _card(found: Found, body: ForeignBody, declared: Declared, names: tuple[str, ...], name: str) -> ModelCard:
    foreign = found.foreign
    behind = found.ending.said if found.floor is None else f"log p, at least {found.floor:.1e}: the file has no logits"
    return ModelCard(
        classes=names,
        preprocessing=declared.preprocessing,
        input=InputSpec("rows", "float32", "NF") if found.taken.rows else InputSpec(),
        outcome="independent" if found.independent else "exclusive",
        name=name,
        head=body.head,
        source={"model": name, "checkpoint_sha256": foreign.sha256},
        precision={"dtype": "float32"}
        if foreign.precision == "float32"
        else {"dtype": foreign.precision, "method": "as adopted"},
        versions={"calibrant": __version__},
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        adopted={
            "file": foreign.path.name,
            "sha256": foreign.sha256,
            "producer": foreign.producer,
            "opset": foreign.opset,
            "precision": foreign.precision,
            "input": {
                "name": found.taken.name,
                "layout": found.taken.layout,
                "elem": found.taken.elem,
                "size": None if found.taken.size is None else list(found.taken.size),
                "batch": found.taken.batch,
            },
            "output": found.output,
            "kind": found.kind,
            "behind": behind,
            "floor": found.floor,
            "head": body.found,
            "colour": "BGR" if declared.bgr else "RGB",
            "preprocessing": declared.source,
            "guesses": list(declared.guesses),
            "batch": body.batch,
        },
    )


def write(
    out: Path,
    card: ModelCard,
    body: ForeignBody,
    expected: Mapping[str, tuple[NDArray[Any], Array]],
    kind: str,
    precision: str,
) -> tuple[ModelCard, Proof]:
    """The file appears when it has been proved on the pictures, each set with the foreign file's answers."""
    if out.is_dir():
        raise DataError("is a folder", where=out)
    out.parent.mkdir(parents=True, exist_ok=True)
    tail = build_tail(card, body.weight, body.bias, body.width, body.batch)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".calibrant-adopt-") as folder:
        draft = Path(folder) / out.name
        save(body.model, draft)
        write_deployed(OnnxFile.open(draft), draft, card, tail)
        proof = prove(
            draft,
            expected,
            kind,
            precision,
            body.batch if isinstance(body.batch, int) else None,
            independent=card.independent,
        )
        require(proof, out)
        card = write_deployed(OnnxFile.open(draft), draft, replace(card, verify=proof.to_dict()), tail)
        card = with_golden_rows(draft, card)
        for data in OnnxFile.open(draft).external_files():
            data.replace(out.parent / data.name)
        draft.replace(out)
    return card, proof
