"""Two machines of one CPU each, as Ray has them in one: the driver is on the first; the second is lost or frozen."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


class TwoNodes:
    """Made in the main thread, as Ray wants it."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, "num_cpus": 1})
        self._frozen: list[int] = []
        self.second: Any = None
        self.add()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> None:
        self.second = self._cluster.add_node(num_cpus=1)

    def lose(self) -> None:
        """SIGKILL to all its processes."""
        self._cluster.remove_node(self.second, allow_graceful=False)
        self.second = None

    def freeze(self) -> None:
        raylet = next(p.process.pid for kind, found in self.second.all_processes.items()
                      for p in found if "raylet" in kind)  # fmt: skip
        self._frozen = [raylet, *_below(raylet)]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)

    def whole(self) -> None:
        """As in the beginning."""
        self._kill_frozen()
        if self.second is None:
            self.add()

    def end(self) -> None:
        self._kill_frozen()
        self._cluster.shutdown()

    def _kill_frozen(self) -> None:
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._frozen:
            self._frozen = []
            self.lose()


@contextlib.contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """With this process on the first; other processes find them as their user would."""
    import ray

    before = {name: os.environ.pop(name, None) for name in ("RAY_ADDRESS", "RAY_TMPDIR")}
    with tempfile.TemporaryDirectory(prefix="r", ignore_cleanup_errors=True) as short:  # a socket's path has 107 bytes
        os.environ["RAY_TMPDIR"] = short
        nodes = TwoNodes()
        try:
            ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
            head = nodes._cluster.head_node
            assert ray.get_runtime_context().get_node_id() == head.node_id
            yield nodes
        finally:
            ray.shutdown()
            nodes.end()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


class Watch:
    """When files of a pattern appeared, and what is done as soon as there are so many."""

    def __init__(self, folder: Path, pattern: str, after: int = 0, then: Callable[[], None] | None = None) -> None:
        self._folder, self._pattern, self._after, self._then = folder, pattern, after, then
        self.times: list[float] = []
        self.then_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.end = time.monotonic()

    def _look(self) -> None:
        doing = None
        while not self._stop.wait(0.02):
            try:
                found = len(list(self._folder.glob(self._pattern)))
            except FileNotFoundError:  # it went away meanwhile, with all of them
                continue
            self.times += [time.monotonic()] * (found - len(self.times))
            if self._then is not None and self.then_at is None and found >= self._after:
                self.then_at = time.monotonic()
                doing = threading.Thread(target=self._then)
                doing.start()
        if doing is not None:
            doing.join()

    @property
    def pause(self) -> float:
        """The longest between two of them, or after the last one."""
        times = [*self.times, self.end]
        return max(b - a for a, b in zip(times, times[1:], strict=False))


def _below(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_below(child)]
    return found
