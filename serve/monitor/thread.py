"""The thread in which the monitors of a server write, count and follow the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.serve.monitor.log.shipping import LogShipping
from calibrant.serve.monitor.monitor import Monitor

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
KEPT_FILES = 3  # of a model version, whose predictions may still get labels


class MonitorThread:
    """Flushes all monitors twice a second and syncs the log every second."""

    def __init__(self, writer: FeedbackWriter | None) -> None:
        self.writer = writer
        self.follow: Callable[[], None] | None = None  # takes in what other processes wrote
        self.shipping: LogShipping | None = None
        self.monitors: list[Monitor] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="monitor", daemon=True)
        self._thread.start()

    def add(self, monitor: Monitor) -> None:
        """Takes over a monitor; of the files that served a version before, the last ones still take labels."""
        same = [
            m for m in self.monitors if (m.model.name, m.model.version) == (monitor.model.name, monitor.model.version)
        ]
        for old in same[: max(0, len(same) - KEPT_FILES + 1)]:
            self.monitors.remove(old)
        self.monitors.append(monitor)

    def flush(self) -> None:
        """Everything that was predicted so far is in the log and, where it is counted, in the figures."""
        self._round(sync=False)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._round(sync=False)
        if self.writer is not None:
            self.writer.close()
        if self.shipping is not None:
            self.shipping.close()

    def _work(self) -> None:
        turn = 0
        while not self._stop.wait(FLUSH_SECONDS):
            turn += 1
            self._round(sync=turn % 2 == 0)

    def _round(self, *, sync: bool) -> None:
        for monitor in list(self.monitors):
            try:
                monitor.flush()
            except Exception:
                log.exception("the monitor of %s failed; serving goes on", monitor.model.name)
        if self.follow is not None:
            try:
                self.follow()
            except Exception:
                log.exception("the log of the other workers cannot be followed; serving goes on")
        if sync and self.writer is not None:
            try:
                self.writer.rotate()
                self.writer.sync()
            except OSError as error:
                log.error("the feedback log cannot be synced: %s", error)
