"""An inference request of the Open Inference Protocol, checked, whatever form it came in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.protocol.tensors import NUMPY, TensorSpec

MOST_JSON = 32 << 20  # bytes; four times as many are numbers in binary data
JSON_VALUE = 32  # bytes of a number with its comma and some blanks


@dataclass(slots=True)
class Plan:
    """A checked head whose tensors are all binary: the next request with the same bytes needs no second look."""

    inputs: list[tuple[TensorSpec, tuple[int, ...], int]]  # with the size in bytes
    total: int
    request: InferRequest  # without its tensors
    needed: tuple[str, ...] = ()  # outputs of the graph that its answer is made of
    plain: bool = False  # these are the answer: no knob, nothing derived
    # What stands before the tensors of the answer, by their shapes: once (JSON), or before each (gRPC).
    answers: dict[tuple[tuple[int, ...], ...], tuple[bytes, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What a request to one model is checked against."""

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]  # what the graph returns
    derived: Mapping[str, TensorSpec]  # what the server computes from it when asked
    batched: bool
    max_rows: int
    knobs: bool  # whether the file has a card, so that knobs mean something
    plans: dict[bytes, Plan] = field(default_factory=dict, compare=False)

    @cached_property
    def most_json(self) -> int:
        """Bytes that the JSON of a request may have."""
        sizes = self._values()
        return MOST_JSON if sizes is None else min((64 << 10) + sum(JSON_VALUE * n for n, _ in sizes), MOST_JSON)

    @cached_property
    def most_binary(self) -> int | None:
        """Bytes that all tensors of a request may have together; None where the model does not bound them."""
        sizes = self._values()
        return None if sizes is None else sum(count * NUMPY[datatype].itemsize for count, datatype in sizes)

    def _values(self) -> list[tuple[int, str]] | None:
        """The most values of each input, and their type; None where one may have any number."""
        found = []
        for spec in self.inputs.values():
            free = spec.shape[1:] if self.batched else spec.shape
            if spec.datatype == "BYTES" or -1 in free:
                return None
            found.append((math.prod(free) * (self.max_rows if self.batched else 1), spec.datatype))
        return found


@dataclass(slots=True)
class Wanted:
    """A requested output."""

    name: str
    binary: bool
    classes: int = 0  # k of the classification extension, 0 for the tensor itself


@dataclass(slots=True)
class InferRequest:
    feeds: dict[str, NDArray[Any]]
    rows: int
    outputs: list[Wanted]
    id: str | None = None
    knobs: Knobs | None = None
    timeout: float | None = None  # seconds
    parameters: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None  # where the JSON head is an old acquaintance
    pictures: bool = False  # came by /predict, which answers from probabilities and logits
