"""Does the adopted file say what the foreign one says? Both run on the same pictures."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.onnx_file import KNOBS
from calibrant.errors import CheckFailed
from calibrant.export.adoption.reading.original import Array, deployed, level_of
from calibrant.export.adoption.reading.values import run_rows
from calibrant.export.checks.parity import answers, session

# Largest difference in probabilities, for logits whose spread is up to 3; beyond, rounding grows with it. Logits taken
# before a quantized softmax are finer than the file's own.
ALLOWED = {"float32": 1e-5, "float16": 1e-3, "int8": 1e-2}
CLEAR = 4.0  # times the tolerance: margins above it have one winner
BATCHES = (1, 3, 16)


@dataclass(frozen=True)
class Proof:
    rows: Mapping[str, int]  # pictures by set
    difference: float | None  # in probabilities; None where the foreign file gives labels only
    winners_equal: bool
    allowed: float
    precision: str
    varies: float  # of the probabilities over pictures: near 0, agreement shows little
    passed: bool

    def to_dict(self) -> dict[str, Any]:
        """As the card's `verify` block."""
        worst = None if self.difference is None else {"probabilities": self.difference}
        return {
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "against": "the foreign file",
            **asdict(self), "rows": dict(self.rows), "max_diff": worst or {"probabilities": 0.0},
            "top1_equal": self.winners_equal, "blind": self.varies < 1e-3,
        }  # fmt: skip

    @property
    def line(self) -> str:
        sets = " + ".join(f"{n} {name}" for name, n in self.rows.items())
        if self.difference is None:
            return f"{sets} pictures: {'the same labels' if self.winners_equal else 'OTHER LABELS'}"
        text = f"{sets} pictures: largest difference in probabilities {self.difference:.1e} ({self.allowed:.0e} allowed"
        text += f", {self.precision}), " + ("winners equal" if self.winners_equal else "WINNERS DIFFER")
        return text + ("; the answers hardly depend on the picture, so this shows little" if self.varies < 1e-3 else "")


def prove(
    adopted: Path,
    expected: Mapping[str, tuple[NDArray[Any], Array]],
    kind: str,
    precision: str,
    batch: int | None,
    *,
    knobs: Mapping[str, NDArray[np.float32]] | None = None,
    independent: bool = False,
) -> Proof:
    """`expected`: by name of a set, rows as the adopted file takes them and the foreign file's answers to them."""
    worst, equal, varies, spread = 0.0, True, [0.0], 3.0
    pairs: list[tuple[Array, Array]] = []
    labels_only = kind == "label"
    for level in sorted({"disabled", level_of(precision)}):
        run = session(adopted, level=level)
        name = next(i.name for i in run.get_inputs() if i.name not in KNOBS)
        for rows, p in expected.values():
            for size in BATCHES if batch is None else (batch,):
                if batch is None:
                    z = answers(run, rows, size, knobs)[0]
                else:
                    z = run_rows(run, rows, ["logits"], batch=batch, name=name)["logits"].astype(np.float64)
                spread = max(spread, float(z.std(axis=1).mean()))
                pairs.append((deployed(z, kind, independent=independent), p))
    allowed = ALLOWED[precision] * spread / 3.0
    for q, p in pairs:
        if labels_only:
            equal = equal and bool(np.all(q.argmax(1) == p))
            continue
        worst = max(worst, float(np.abs(q - p).max()) if np.isfinite(q).all() else np.inf)
        top = np.sort(p, axis=1)
        clear = top[:, -1] - top[:, -2] > CLEAR * allowed
        equal = equal and bool(np.all((q.argmax(1) == p.argmax(1))[clear]))
        varies.append(float(p.std(axis=0).max()))
    return Proof(
        {name: len(rows) for name, (rows, _) in expected.items()},
        None if labels_only else worst,
        equal,
        allowed,
        precision,
        1.0 if labels_only else max(varies),
        equal and worst <= allowed,
    )


def require(proof: Proof, where: Path) -> None:
    if not proof.passed:
        raise CheckFailed(
            f"the adopted file does not say what the foreign one does: {proof.line}",
            where=where,
            fix="the file was not written; give --output-kind, or report the file",
        )
