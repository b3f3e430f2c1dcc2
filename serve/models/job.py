"""A request on its way through the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrant.serve.engine.session import Arrays


@dataclass(slots=True, eq=False)
class Job:
    """A request in the queue. `result` or `error` is set when it comes back."""

    feeds: Arrays
    rows: int
    outputs: tuple[str, ...]
    done: Callable[[Job], None]
    deadline: float = float("inf")  # time.monotonic
    cancelled: bool = False
    result: Arrays | None = None
    error: Exception | None = None
    queued: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    input_ns: int = 0  # its share of what it took to join the tensors of its run
    infer_ns: int = 0  # its share of the run
