"""What the feedback log keeps of the logits: bytes a row, and how far figures and alarms move.

    OMP_NUM_THREADS=1 python bench/log_kept.py [--classes 10 100 1000] [--streams 20 20 4] [--seed 1]

Rows of a model whose logits are products of 32 features and class vectors, scaled to a mean confidence of about .75;
labels from softmax(.85 logits), so that it is over-confident. The same rows are kept in each way. Figures: 5,000 rows
with labels. Alarms: streams of 4,000 labels whose law turns to softmax(.5 logits) after 2,000, with a baseline of
labelled rows that were kept whole; told are false alarms before the turn, labels from the turn to the alarm, and by how
many labels the alarm comes at another row than with float32.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from pathlib import Path

import numpy as np

from calibrant.artifacts.feedback import Model, read_feedback
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.calibration import evaluate
from calibrant.calibration.monitoring.alarms import Alarms, Watch, served_log_p
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftSettings
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of

WAYS = {"float32": Kept(), "float16": Kept(half=True), "top 50": Kept(top=50), "top 50, float16": Kept(True, 50),
        "top 20, float16": Kept(True, 20), "top 5, float16": Kept(True, 5)}  # fmt: skip
FEATURES, BEFORE, AFTER, BLOCK = 32, 2000, 2000, 25


class World:
    def __init__(self, classes: int, seed: int) -> None:
        self.vectors = np.random.default_rng(seed).normal(size=(FEATURES, classes)) / np.sqrt(FEATURES)
        self.scale = 1.0
        rng = np.random.default_rng(seed + 1)
        while softmax(self.logits(500, rng)).max(axis=1).mean() < 0.75:
            self.scale *= 1.1

    def logits(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return (self.scale * rng.normal(size=(n, FEATURES)) @ self.vectors).astype(np.float32)

    def labels(self, logits: np.ndarray, sharpness: float, rng: np.random.Generator) -> np.ndarray:
        return (sharpness * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def size(kept: Kept, logits: np.ndarray) -> tuple[float, float]:
    """Bytes a row in blocks of 32, with ids of 36 characters, times and latencies; and of the same as Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        writer = FeedbackWriter(folder, kept=kept)
        model = Model("m", "1", "ab", tuple(f"class {k}" for k in range(logits.shape[1])))
        for start in range(0, len(logits), 32):
            block = logits[start : start + 32]
            ids = [str(uuid.uuid4()) for _ in block]
            times = [round(1.7e9 + start + i / 100, 3) for i in range(len(block))]
            writer.predictions(model, ids, times, block, latency_ms=[1.234] * len(block))
        writer.close()
        assert len(read_feedback(folder).served[0].ids) == len(logits)
        found = compact(Path(folder))
        assert len(read_feedback(folder).served[0].ids) == len(logits)
        return found.bytes_before / len(logits), found.bytes_after / len(logits)


def alarm_rows(kept: Kept, log_p_known: KnownRows, logits: np.ndarray, labels: np.ndarray) -> list[int]:
    """The label counts at which the alarm came."""
    settings = CalibrationSettings()
    alarms = Alarms(logits.shape[1], Watch.given(0.0, settings, DriftSettings(), log_p_known, 2000))
    log_p, found = served_log_p(kept.seen(logits)), []
    for start in range(0, len(labels), BLOCK):
        if alarms.labelled(log_p[start : start + BLOCK], labels[start : start + BLOCK]):
            found.append(start + BLOCK)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--streams", type=int, nargs="+", default=[20, 20, 4])
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for classes, streams in zip(asked.classes, asked.streams, strict=True):
        world, rng = World(classes, asked.seed), np.random.default_rng(asked.seed + 2)
        logits = world.logits(5000, rng)
        labels = world.labels(logits, 0.85, rng)
        ways = {name: kept for name, kept in WAYS.items() if kept.top is None or kept.top < classes}
        print(f"\n{classes} classes, accuracy {(logits.argmax(1) == labels).mean():.3f}")
        whole = None
        for name, kept in ways.items():
            figures = {k: m.value for k, m in evaluate(statistics_of(kept.seen(logits), labels)).metrics.items()}
            whole = whole or figures
            moved = {k: figures[k] - whole[k] for k in ("accuracy", "ece", "nll", "brier", "classwise_ece")}
            lines, table = size(kept, logits)
            print(f"  {name:16} {lines:7.0f} bytes, Parquet {table:7.0f}", f"NLL {figures['nll']:.4f};",
                  " ".join(f"{k} {v:+.1e}" for k, v in moved.items()))  # fmt: skip
        at: dict[str, list[int]] = {name: [] for name in ways}
        false = dict.fromkeys(ways, 0)
        for _ in range(streams):
            known_z = world.logits(min(5000, max(1000, 50 * classes)), rng)
            known = KnownRows.of(served_log_p(known_z), world.labels(known_z, 0.85, rng))
            calm, turned = world.logits(BEFORE, rng), world.logits(AFTER, rng)
            truth = np.concatenate([world.labels(calm, 0.85, rng), world.labels(turned, 0.5, rng)])
            for name, kept in ways.items():
                rows = alarm_rows(kept, known, np.concatenate([calm, turned]), truth)
                false[name] += any(row <= BEFORE for row in rows)
                at[name].append(min((row - BEFORE for row in rows if row > BEFORE), default=AFTER))
        for name in ways:
            shift = np.array(at[name]) - np.array(at["float32"])
            print(f"  {name:16} false {false[name]} of {streams}; labels to the alarm, median "
                  f"{np.median(at[name]):.0f}; against float32 {shift.min():+d} .. {shift.max():+d}")  # fmt: skip


if __name__ == "__main__":
    main()
