"""metrics.jsonl (one line per epoch) and TensorBoard events of a run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant.atomic import write_text

METRICS_FILE = "metrics.jsonl"


def read_history(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a line that a kill cut short is left out."""
    file = run / METRICS_FILE
    lines: list[dict[str, Any]] = []
    for text in file.read_text().splitlines() if file.is_file() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


class History:
    """Appends epochs. `epochs`: how many of them the checkpoint knows; lines of later ones will come again, and go."""

    def __init__(self, run: Path, *, epochs: int, tensorboard: bool) -> None:
        self.file = run / METRICS_FILE
        kept = [line for line in read_history(run) if line["epoch"] <= epochs]
        write_text(self.file, "".join(_dump(line) for line in kept))
        self._events: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(run / "tb"), purge_step=len(kept) or None)  # type: ignore[no-untyped-call]

    def append(self, line: Mapping[str, Any]) -> None:
        with open(self.file, "a", encoding="utf-8") as stream:
            stream.write(_dump(line))
            stream.flush()
            os.fsync(stream.fileno())
        if self._events is not None:
            self._write_events(line, int(line["epoch"]))

    def _write_events(self, line: Mapping[str, Any], epoch: int) -> None:
        for name, value in line.items():
            if name in ("epoch", "update"):
                continue
            entries = value.items() if isinstance(value, Mapping) else [("", value)]
            for inner, number in entries:
                tag = f"{name}/{inner}" if inner else f"run/{name}"
                if isinstance(number, list):
                    import numpy as np

                    finite = np.asarray([v for v in number if math.isfinite(v)])
                    if len(finite):
                        self._events.add_histogram(tag, finite, epoch)
                elif isinstance(number, int | float) and math.isfinite(number):
                    self._events.add_scalar(tag, number, epoch)
        self._events.flush()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()


def _dump(line: Mapping[str, Any]) -> str:
    return json.dumps(_finite(line), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; null stands for both."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
