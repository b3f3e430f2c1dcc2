"""Statistics of the shards of a predictions file, each by an actor of Ray on one machine or many.

The driver adds them in the order of the shards' names, as one process does, so that the sum is the same to the bit.
What a machine was at that goes away is done elsewhere. Of a copy from object storage each machine copies the shards
that it is given; other files must lie under the same path on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.formula import Formula
from calibrant.calibration.statistics.sidecar import of_shard
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.remote.ray_pool import Pool
from calibrant.remote.ray_session import session
from calibrant.remote.storage import address_of, here


class Actor:
    def __init__(self, file: PredictionsFile, formula: Formula | None) -> None:
        self._file, self._formula = file, formula

    def ready(self) -> None:
        return None

    def work(self, place: str) -> Statistics | None:
        shard: Path = here(place)
        return of_shard(replace(self._file, path=shard), shard, self._formula)


def shards_on_ray(file: PredictionsFile, formula: Formula | None) -> Iterator[Statistics | None]:
    """Of each shard in its order; None where it has no labelled row."""
    places = [address_of(shard) or str(shard.resolve()) for shard in file.shards]
    with session("calibrant evaluate --engine ray") as cluster:
        count = min(len(places), max(1, int(cluster.resource("CPU"))))
        remote = cluster.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
        pool = Pool(
            cluster.ray,
            lambda: remote.remote(file, formula),
            places,
            count=count,
            where="--engine ray",
            name=lambda place: (f"the shard {place}", place),
            ahead=3 * count,  # results wait for their turn
        )
        early: dict[str, Statistics | None] = {}
        turn = iter(places)
        following = next(turn)
        for place, found in pool.run():
            early[place] = found
            while following in early:
                yield early.pop(following)
                following = next(turn, "")
