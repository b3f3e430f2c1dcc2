"""Does the deployed file say what the network says? onnxruntime against torch, at several batch sizes and settings.

A file passes when probabilities differ by at most 1e-5 and logits by 1e-4 of their spread, and the winners are the
same wherever the margin is larger than what those tolerances allow. Both scale with the spread of the logits beyond 3,
as float32 rounding does. Networks with random weights give nearly constant logits, on which any graph would pass, so
the report says how much the logits vary over the images.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.onnx_file import KNOBS
from calibrant.calibration.softmax import softmax
from calibrant.errors import FormatError
from calibrant.runtime import runtime

log = logging.getLogger(__name__)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """What the file should say: deployed logits (N, C), and the rows on which that can be asked.

    A histogram jumps: where a probability lies within float32 rounding of a jump, both sides are right. `bends` is set
    for calibrators that are functions of a probability; the logarithm of one near 0 has no digits to compare.
    """

    logits: Array
    steady: NDArray[np.bool_]
    bends: bool = False


Reference = Callable[[NDArray[Any]], Expected]  # images as the graph takes them

BATCHES = (1, 3, 16)
LEVELS = ("all", "disabled")
EVERY_LEVEL = ("all", "extended", "basic", "disabled")


@dataclass(frozen=True)
class Tolerance:
    probabilities: float = 1e-5
    logits: float = 1e-4  # relative to the spread of the logits


@dataclass(frozen=True)
class Comparison:
    """What a new file is compared with torch on, and how close it must come."""

    images: NDArray[Any] | None = None  # real ones as the graph takes them, beside random ones
    tolerance: Tolerance | None = None


@dataclass(frozen=True)
class Check:
    """One comparison: a set of images through one session setting in batches of one size."""

    images: str
    batch: int
    level: str
    threads: int
    probabilities: float  # largest absolute difference
    logits: float  # largest difference relative to the spread
    top1_equal: bool
    passed: bool


@dataclass(frozen=True)
class Report:
    checks: tuple[Check, ...]
    tolerance: Tolerance
    spread: float  # standard deviation of the logits over classes
    variation: float  # standard deviation of the logits over images: near 0 the comparison is blind
    engines: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(c.passed for c in self.checks)

    @property
    def blind(self) -> bool:
        return self.variation < 1e-3 * max(self.spread, 1e-12) or self.spread == 0

    @property
    def worst(self) -> Check:
        return max(self.checks, key=lambda c: (not c.passed, c.probabilities))

    def to_dict(self) -> dict[str, Any]:
        return {
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "passed": self.passed,
            "tolerance": asdict(self.tolerance),
            "max_diff": {
                "probabilities": max(c.probabilities for c in self.checks),
                "logits_relative": max(c.logits for c in self.checks),
            },
            "top1_equal": all(c.top1_equal for c in self.checks),
            "logit_spread": self.spread,
            "logit_variation": self.variation,
            "blind": self.blind,
            "images": sorted({c.images for c in self.checks}),
            "batches": sorted({c.batch for c in self.checks}),
            "levels": sorted({c.level for c in self.checks}),
            "threads": sorted({c.threads for c in self.checks}),
            "engines": dict(self.engines),
        }


def session(path: str | Path | bytes, *, level: str = "all", threads: int = 1) -> Any:
    """An onnxruntime session on the CPU; errors of damaged files become one clear line."""
    ort = runtime()

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = {
        "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    }[level]
    try:
        return ort.InferenceSession(
            path if isinstance(path, bytes) else str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime's exception types share no public base
        where = None if isinstance(path, bytes) else path
        raise FormatError(
            f"onnxruntime cannot load it ({str(error).splitlines()[0][:200]})", where=where, fix="export it again"
        ) from None


def compare(
    path: str | Path,
    reference: Reference,
    images: Mapping[str, NDArray[Any]],
    *,
    batches: Sequence[int] = BATCHES,
    levels: Sequence[str] = LEVELS,
    threads: Sequence[int] = (1, 2),
    tolerance: Tolerance | None = None,
    knobs: Mapping[str, NDArray[np.float32]] | None = None,
) -> Report:
    """Compares `path` with the reference on each set of images; `knobs` are rows for required inputs.

    Runs every batch size at the first level and thread count; another count or level is asked for the largest batch,
    and an unoptimised graph is slow.
    """
    ort = runtime()

    tolerance = tolerance or Tolerance()
    expected = {name: reference(x) for name, x in images.items()}
    everything = np.concatenate([e.logits for e in expected.values()])
    spread = float(everything.std(axis=1).mean())
    scale = max(1.0, spread / 3.0)
    limits = (tolerance.probabilities * scale, tolerance.logits * max(spread, 1e-6))
    checks = []
    for level in levels:
        for count in threads if level == levels[0] else threads[:1]:
            run = session(path, level=level, threads=count)
            for batch in batches if (level, count) == (levels[0], threads[0]) else [max(batches)]:
                for name, x in images.items():
                    z, q = answers(run, x, batch, knobs)
                    checks.append(_check(name, z, q, expected[name], batch, level, count, limits, spread))
    report = Report(
        tuple(checks), tolerance, spread, float(everything.std(axis=0).mean()), {"onnxruntime": ort.__version__}
    )
    if report.blind:
        log.warning("the logits hardly depend on the image, so that agreement with torch shows little")
    return report


def answers(
    run: Any, x: NDArray[Any], batch: int, knobs: Mapping[str, NDArray[np.float32]] | None = None
) -> tuple[Array, Array]:
    """Logits and probabilities of a session, asked in batches."""
    names = [o.name for o in run.get_outputs()]
    wanted = [n for n in ("logits", "probabilities") if n in names]
    taken = next((i.name for i in run.get_inputs() if i.name not in KNOBS), "images")
    required = {i.name for i in run.get_inputs()} - {taken}
    parts = []
    for start in range(0, len(x), batch):
        rows = x[start : start + batch]
        extra = {k: np.repeat(v, len(rows), axis=0) for k, v in (knobs or {}).items() if k in required}
        parts.append(run.run(wanted, {taken: rows, **extra}))
    got = dict(zip(wanted, (np.concatenate(p) for p in zip(*parts, strict=True)), strict=True))
    logits = np.asarray(got["logits"], np.float64)
    return logits, np.asarray(got.get("probabilities", softmax(logits)), np.float64)


def _check(
    name: str,
    logits: Array,
    q: Array,
    expected: Expected,
    batch: int,
    level: str,
    threads: int,
    limits: tuple[float, float],
    spread: float,
) -> Check:
    finite = bool(np.isfinite(q).all())
    logits, q, z = logits[expected.steady], q[expected.steady], expected.logits[expected.steady]
    p = softmax(z)
    by_p = float(np.abs(q - p).max())
    compared = p > 1e-4 if expected.bends else np.ones(p.shape, bool)
    by_z = float(np.abs(logits - z)[compared].max())
    top = np.sort(p, axis=1)
    clear = top[:, -1] - top[:, -2] > 4 * limits[0]
    equal = bool(np.all((q.argmax(1) == p.argmax(1))[clear]))
    passed = bool(by_p <= limits[0] and by_z <= limits[1] and equal and finite)
    return Check(name, batch, level, threads, by_p, by_z / max(spread, 1e-6), equal, passed)


def steady_rows(formula: Callable[[Array], Array], logits: Array, *, jump: float = 5e-6) -> NDArray[np.bool_]:
    """Rows whose probabilities move by less than `jump` when the logits move by float32 rounding.

    They move together and each by itself: equal logits lie on a knot at 1/C however they are scaled. All rows where
    fewer than half are steady: then the formula is what is wrong.
    """
    rng = np.random.default_rng(0)
    size = 5e-7 * np.maximum(np.abs(logits), 1.0)
    moves = [1e-6 * logits, *(size * rng.choice([-1.0, 1.0], logits.shape) for _ in range(3))]
    keep = np.ones(len(logits), bool)
    for move in moves:
        low, high = (softmax(formula(logits + sign * move)) for sign in (-1, 1))
        keep &= np.abs(high - low).max(1) < jump
    return keep if keep.mean() >= 0.5 else np.ones(len(keep), bool)
