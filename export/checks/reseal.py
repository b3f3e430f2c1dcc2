"""`calibrant verify --reseal`: a file that another tool changed becomes one that can be edited again.

A simplifier or a converter to half precision breaks the hashes, and often renames or fuses what an edit would replace.
The changed file must answer as it did before. Then the value that the tail starts from is looked for by its numbers,
whatever it is called now, and behind it the tail is written anew, with the classifier in float32 as it was.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.softmax import softmax
from calibrant.errors import CheckFailed, DataError, FormatError
from calibrant.export.adoption.body import LOST, raised
from calibrant.export.adoption.pictures import Pictures, random_pictures
from calibrant.export.adoption.proof import Proof, prove
from calibrant.export.adoption.reading.foreign import precision_of
from calibrant.export.adoption.reading.values import near_the_end, run_values
from calibrant.export.checks.golden import with_golden_rows
from calibrant.export.checks.inspection import check_intact
from calibrant.export.checks.parity import answers, session
from calibrant.export.edit import noted
from calibrant.export.graph.assemble import build_tail, feature_dim, knob_defaults, raw_head, write_deployed
from calibrant.export.graph.cutting import cut, rename_all
from calibrant.export.graph.head import Graph
from calibrant.export.graph.saving import save
from calibrant.export.graph.tail import tail_reads

RANDOM = 16


@dataclass(frozen=True)
class Resealed:
    card: ModelCard
    proof: Proof
    precision: str


def reseal(changed: Path, before: Path, out: Path | None = None, images: Path | None = None) -> Resealed:
    """Writes `changed` (or `out`) with the card and the tail of `before`, once they answer alike."""
    file = OnnxFile.open(before)
    card = file.card()
    check_intact(file, card)
    OnnxFile.open(changed)  # what is no ONNX file says so here
    model = onnx.load(str(changed))
    precision = precision_of(model)
    sets: dict[str, NDArray[Any]] = {"random": random_pictures(RANDOM, card.preprocessing.size)}
    if images is not None:
        sets["given"] = Pictures.of(images, card.classes).pixels(card.preprocessing)
    if card.input.dtype != "uint8":
        sets = {name: card.preprocessing.normalise(x) for name, x in sets.items()}
    _check_shape(model, card, changed)
    proof = _proof(changed, before, sets, card, precision)
    if not proof.passed:
        raise CheckFailed(f"does not answer as {before.name} does: {proof.line}", where=changed)
    head = raw_head(file, card)
    weight, bias = head if head is not None else (None, None)
    tail = build_tail(card, weight, bias, feature_dim(file, card), file.outputs[0].dims[0])
    body = _body(model, before, card, tail_reads(tail), sets["random"], precision)
    kind = card.precision if precision == "float32" else {"dtype": precision, "method": "changed outside"}
    card = noted(
        replace(card, precision=kind, verify=proof.to_dict()), f"resealed after a change outside ({precision})"
    )
    target = out or changed
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".calibrant-reseal-") as folder:
        draft = Path(folder) / target.name
        save(body, draft)
        card = write_deployed(OnnxFile.open(draft), draft, card, tail)
        again = _proof(draft, before, sets, card, precision)
        if not again.passed:
            raise CheckFailed(f"with its tail written anew it answers otherwise: {again.line}", where=changed)
        card = with_golden_rows(draft, card)
        for data in OnnxFile.open(draft).external_files():
            data.replace(target.parent / data.name)
        draft.replace(target)
    return Resealed(card, again, precision)


def _check_shape(model: onnx.ModelProto, card: ModelCard, where: Path) -> None:
    weights = {t.name for t in model.graph.initializer}
    inputs = {i.name for i in model.graph.input} - weights
    if card.input.name not in inputs or "logits" not in {o.name for o in model.graph.output}:
        raise FormatError(
            f"takes {', '.join(sorted(inputs)) or 'nothing'} and gives "
            f"{', '.join(o.name for o in model.graph.output)}, expected {card.input.name} and logits",
            where=where,
            fix="let the tool keep the names of inputs and outputs",
        )


def _proof(path: Path, before: Path, sets: dict[str, NDArray[Any]], card: ModelCard, precision: str) -> Proof:
    """Both files' whole answers, calibration included."""
    knobs = knob_defaults(card)
    run = session(before)
    expected = {n: (x, softmax(answers(run, x, 16, knobs)[0])) for n, x in sets.items()}
    return prove(path, expected, "logits", precision, None, knobs=knobs)


def _body(
    model: onnx.ModelProto, before: Path, card: ModelCard, values: set[str], rows: NDArray[Any], precision: str
) -> onnx.ModelProto:
    """The changed graph up to the values that the tail reads, which have their names again."""
    feeds = {card.input.name: rows[:4]}
    wanted = run_values(onnx.load(str(before)), sorted(values), _with_knobs(onnx.load(str(before)), feeds, card))
    graph = Graph(model)
    near = near_the_end(graph, [o.name for o in model.graph.output])
    found = run_values(model, near, _with_knobs(model, feeds, card))
    fresh: dict[str, str] = {}
    for name, target in wanted.items():
        fresh[name] = _same(found, target, precision, card)
    model = raised(model, _with_knobs(model, feeds, card), next(iter(fresh.values())))
    for name, now in fresh.items():
        half = found[now].dtype != np.float32
        if now == name and not half:
            continue
        aside = f"{name}_before_reseal"
        if name in {out for node in model.graph.node for out in node.output}:
            rename_all(model.graph, {name: aside})
            now = aside if now == name else now
        op = (
            helper.make_node("Cast", [now], [name], name=f"{name}_resealed", to=TensorProto.FLOAT)
            if half
            else (helper.make_node("Identity", [now], [name], name=f"{name}_resealed"))
        )
        model.graph.node.append(op)
        shape = ["N", *wanted[name].shape[1:]]
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    cut(model, set(values))
    return model


def _with_knobs(model: onnx.ModelProto, feeds: dict[str, NDArray[Any]], card: ModelCard) -> dict[str, NDArray[Any]]:
    weights = {t.name for t in model.graph.initializer}
    needed = {i.name for i in model.graph.input} - weights
    rows = len(next(iter(feeds.values())))
    return feeds | {k: np.repeat(v, rows, axis=0) for k, v in knob_defaults(card).items() if k in needed}


def _same(found: dict[str, NDArray[Any]], target: NDArray[Any], precision: str, card: ModelCard) -> str:
    """The value of the changed graph that is `target` by its numbers, nearest to the outputs."""
    size = max(float(np.abs(target).max()), 1e-6)
    for name, array in found.items():
        if array.dtype.kind != "f" or array.shape != target.shape:
            continue
        if np.abs(array.astype(np.float64) - target).max() <= LOST[precision] * size:
            return name
    raise DataError(
        "no value of the changed graph is what the classifier took before: the tool fused it away",
        fix="let it leave the last layer alone, or keep the file as it is and edit the one before, then change that",
    )
