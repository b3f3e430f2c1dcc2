"""Statistics of the shards of a predictions file, each by a task of Ray on one machine or many.

The driver adds them in the order of the shards' names, as one process does, so that the sum is the same to the bit. A
task whose machine goes away is started again elsewhere. Of a copy from object storage each machine copies the shards
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
from calibrant.errors import CalibrantError, ModelError
from calibrant.remote.ray_session import said, session
from calibrant.remote.storage import address_of, here


def shards_on_ray(file: PredictionsFile, formula: Formula | None) -> Iterator[Statistics | None]:
    """Of each shard in its order; None where it has no labelled row."""
    with session("--engine ray") as ray:
        task = ray.remote(num_cpus=1, max_retries=3)(_work)
        ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))  # results wait for their turn
        places = [address_of(shard) or str(shard.resolve()) for shard in file.shards]
        waiting = [task.remote(file, place, formula) for place in places[:ahead]]
        for number in range(len(places)):
            try:
                found = ray.get(waiting[number])
            except ray.exceptions.RayError as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, CalibrantError):
                    raise type(cause)(cause.what, where=cause.where, fix=cause.fix) from None
                raise ModelError(f"a task of Ray failed ({said(error)})", where=file.shards[number]) from None
            waiting[number] = None
            if len(waiting) < len(places):
                waiting.append(task.remote(file, places[len(waiting)], formula))
            yield found


def _work(file: PredictionsFile, place: str, formula: Formula | None) -> Statistics | None:
    shard: Path = here(place)
    return of_shard(replace(file, path=shard), shard, formula)
