"""Does the memory of the worker that keeps the labels grow? Its classes in one process, as fast as they go.

    python bench/monitor_memory.py [--answers 1000000] [--reload 30000] [--every 100000] [--json PATH]

Two workers write the feedback log in turns, ten answers at a time (one of them is another process to the monitors,
which follow its segments), and a tenth of the answers gets a label at once. --reload brings a new file of version 1
every so many answers, as after a reload of a server. Printed is the memory that is
this process's own (MiB); `growth_percent` is the median of the last tenth over that of the seventh, `trimmed` what is
left once malloc has given back what it can.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from serve_soak import CLASSES, SIZE, resident

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.model_card import InputSpec, ModelCard
from calibrant.images.preprocessing import Preprocessing
from calibrant.serve.engine import heap
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.labels import Labels
from calibrant.serve.monitor.log.history import History
from calibrant.serve.monitor.log_follower import LogFollower
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.monitor.taking import take_labels
from calibrant.serve.monitor.thread import MonitorThread

NAMES = tuple(f"class-{k}" for k in range(CLASSES))
CARD = ModelCard(NAMES, Preprocessing(size=(SIZE, SIZE), resize=SIZE), name="soak",
                 input=InputSpec("images", "float32", "NCHW"))  # fmt: skip
BLOCK = 10


class Keeper:
    """Versions 1 and 2 of a model, of which the second answers a tenth."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.own, self.other = folder, FeedbackWriter(folder), FeedbackWriter(folder)
        self.thread, self.history = MonitorThread(None), History(folder)
        self.reloads = self.answers = self.labels = 0
        self.newest = {version: self.load(version, f"{version}-0") for version in "12"}
        self.follower = LogFollower(folder, self.own.wrote, self.thread.monitors)
        self.dice = np.random.default_rng(0)
        self.logits = self.dice.normal(0, 0.8, (BLOCK, CLASSES)).astype(np.float32)

    def load(self, version: str, sha256: str) -> Monitor:
        monitor = Monitor(feedback.Model("soak", version, sha256, NAMES), CARD, MonitorConfig(), self.own,
                          history=self.history)  # fmt: skip
        self.thread.add(monitor)
        return monitor

    def reload(self) -> None:
        self.reloads += 1
        self.newest["1"] = self.load("1", f"1-{self.reloads}")

    def step(self) -> None:
        ids = [f"{k}-{time.time_ns()}-{self.answers + k}" for k in range(2 * BLOCK)]
        for k in range(BLOCK):
            self.newest["2" if self.dice.random() < 0.1 else "1"].record(ids[k], self.logits[k : k + 1], 0.001)
        times, took = [time.time()] * BLOCK, [1.0] * BLOCK
        self.other.predictions(self.newest["1"].model, ids[BLOCK:], times, self.logits, latency_ms=took)
        for monitor in self.thread.monitors:
            monitor.flush()
        self.follower.round()
        given = Labels([ids[3], ids[BLOCK + 3]], [int(k) for k in self.dice.integers(0, CLASSES, 2)])
        if take_labels(self.thread.monitors, given).count("accepted") != 2:
            raise SystemExit(f"a label was lost after {self.answers:,} answers")
        self.answers, self.labels = self.answers + 2 * BLOCK, self.labels + 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--reload", type=int, default=0)
    parser.add_argument("--every", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    heap.share()
    logging.disable(logging.WARNING)  # labels are drawn, so alarms come
    found: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory(prefix="monitor-memory-") as folder:
        keeper, start = Keeper(Path(folder)), time.perf_counter()
        while keeper.answers < asked.answers:
            keeper.step()
            if asked.reload and keeper.answers // asked.reload > keeper.reloads:
                keeper.reload()
            if keeper.answers % (asked.every // 10) == 0:
                found.append((keeper.answers, resident(os.getpid())))
            if keeper.answers % asked.every == 0:
                took = f"{1e6 * (time.perf_counter() - start) / keeper.answers:.0f} us an answer"
                print(
                    f"{keeper.answers:,} answers, {keeper.labels:,} labels: {found[-1][1]:.1f} MiB, {took}", flush=True
                )
        early, late = (
            statistics.median(m for n, m in found if low < n / asked.answers <= low + 0.1) for low in (0.6, 0.9)
        )
        ctypes.CDLL(None).malloc_trim(0)
        report = {
            "answers": keeper.answers, "labels": keeper.labels, "reloads": keeper.reloads,
            "growth_percent": round(100 * (late / early - 1), 2), "trimmed": round(resident(os.getpid()), 1),
        }  # fmt: skip
        print(json.dumps(report))
        if asked.json:
            asked.json.write_text(json.dumps({**report, "mebibytes": found}))
        keeper.thread.close()


if __name__ == "__main__":
    main()
