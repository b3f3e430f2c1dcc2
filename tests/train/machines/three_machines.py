"""Run by test_ray_train.py in a process of its own: a cluster of three nodes of one core, of which two are lost.

Prints what was killed when and when the group was there again, as JSON. The driver is on a head without cores.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from calibrant.config import read_toml
from calibrant.errors import CalibrantError
from calibrant.train.config import train_config
from calibrant.train.machines.ray_train import Workers, fit_on_ray
from tests.train.machines.tiny import children, command_of, epochs_of, kill, started, wait_for_epoch

KILLS = ((3, "process"), (6, "machine"), (9, "machine"))


def main(file: Path) -> dict[str, Any]:
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = _up(lambda: Cluster(initialize_head=True, head_node_args=head))
    machines = [_up(lambda: cluster.add_node(num_cpus=1)) for _ in range(3)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    config = train_config(read_toml(file))
    try:
        other = replace(config, data=replace(config.data, layout="cub"), out=config.out.with_name("refused"))
        fit_on_ray(other, Workers(1, 1))
        refused = "was not"
    except CalibrantError as error:
        refused = str(error)
    events: list[tuple[float, str]] = []
    over = threading.Event()

    def lose() -> None:
        for epoch, what in KILLS:
            wait_for_epoch(config.out, epoch, lambda: not over.is_set(), 300)
            # A process of the group before may still be ending: the youngest is of the one that trains.
            pid, machine = max(((p, m) for m in machines for p in _trainers(m)), key=lambda found: started(found[0]))
            if what == "process":
                kill(pid)
            else:
                machines.remove(machine)
                _switch_off(machine)
                cluster.remove_node(machine, allow_graceful=False)
            events.append((time.monotonic(), f"{what} killed after epoch {max(epochs_of(config.out))}"))

    thread = threading.Thread(target=lose)
    thread.start()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith(("started again", "process ")):
            events.append((time.monotonic(), line))

    try:
        fit_on_ray(config, Workers(1, 2), on_start=say)
    finally:
        over.set()
        thread.join()
        ray.shutdown()
        cluster.shutdown()
    begun = events[0][0] if events else 0.0
    return {"refused": refused, "said": said, "events": [(round(at - begun, 1), what) for at, what in events]}


def _up(start: Callable[[], Any]) -> Any:
    """Ray gives a node 30 s, which a machine that others use may not have."""
    for _ in range(3):
        try:
            return start()
        except Exception as error:
            failed = error
    raise failed


def _switch_off(machine: Any) -> None:
    """All at once: a process whose raylet alone is gone goes on for a second, which is three epochs here."""
    raylet = machine.all_processes["raylet"][0].process.pid
    for pid in (*children(raylet), raylet):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            kill(pid)


def _trainers(machine: Any) -> list[int]:
    """The processes of that node's raylet which train."""
    raylet = machine.all_processes["raylet"][0].process.pid
    return [pid for pid in children(raylet) if "TrainWorker" in command_of(pid)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
