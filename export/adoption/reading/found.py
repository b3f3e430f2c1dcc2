"""Which output of a foreign file to take, what it is, and where the logits behind it are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.errors import ConfigError, ModelError, did_you_mean
from calibrant.export.adoption.reading.ending import RANK, Ending, Walk
from calibrant.export.adoption.reading.foreign import Foreign
from calibrant.export.adoption.reading.input_side import ForeignInput
from calibrant.export.adoption.reading.original import level_of
from calibrant.export.adoption.reading.output_kind import agreed, floor_of, kind_of_numbers
from calibrant.export.adoption.reading.values import Arrays, near_the_end, run_rows, run_values
from calibrant.export.checks.parity import session
from calibrant.export.graph.head import Graph
from calibrant.images.declared.declaration import Declared

RANDOM = 16
LEAST = 2.0**-24  # of a probability and of its complement: float32 has nothing between 1 - LEAST and 1


@dataclass(frozen=True)
class Seen:
    """What a run of the foreign graph on two pictures showed."""

    feed: NDArray[Any]
    arrays: Arrays


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

    @property
    def stands_in(self) -> str:
        """What takes the place of logits that the file does not have."""
        return "log p - log(1 - p)" if self.independent else "log p"


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
    values = run_rows(session(foreign.path, level=level_of(foreign.precision)), rows, [told], batch=taken.batch)[told]
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
        if kind == "sigmoid" and values[0].size > 1 and not independent:
            raise ModelError("its sigmoid is not in the graph as such, so there are no logits", where=foreign.path)
        floor = floor_of(values) if not independent else max(floor_of(np.concatenate([values, 1 - values])), LEAST)
    if kind == "sigmoid" and not independent and values[0].size == 1:
        kind = "probabilities"  # of the second class
    return Found(foreign, taken, told, kind, ending, seen, floor, independent)


def _allowed(classes: int) -> tuple[int, ...]:
    return (classes, 1) if classes == 2 else (classes,)


def _columns(arrays: dict[str, NDArray[Any]], value: str) -> int:
    array = arrays.get(value)
    return -1 if array is None else int(np.asarray(array[0]).size)


def _no_output(endings: dict[str, Ending], arrays: dict[str, NDArray[Any]], classes: int) -> str:
    single = [n for n, e in endings.items() if _columns(arrays, e.logits) == 1 and arrays[e.logits].dtype.kind == "f"]
    if len(single) == classes > 2:
        return (
            f"each of its {classes} classes is an output of its own; make them one, as skl2onnx does with zipmap=False"
        )
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
