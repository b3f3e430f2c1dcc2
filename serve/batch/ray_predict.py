"""`calibrant predict MODEL.onnx --engine ray`: the parts of a run, each by one of several processes of Ray.

Every actor loads the model, lists the images and predicts the parts that it is given with the code of `order`. What
comes back is written here, part by part, so that a run that was interrupted goes on where it was and the rows stand in
the order of the images, whichever actor was first. Only this process writes, and the pool gives it each part once, so a
part that two actors did, as one was taken for lost, is in the file once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from calibrant.errors import DataError
from calibrant.remote.ray_pool import Pool
from calibrant.remote.ray_session import session
from calibrant.serve.batch.order import Order, Part, Span, Workplace
from calibrant.serve.engine.providers import available_cores

CORES = 4  # of one actor where nobody says how many actors


class Actor:
    """One copy of the model and the threads that decode for it."""

    def __init__(self, order: Order, threads: int) -> None:
        self._order, self._threads = order, threads

    def ready(self) -> str:
        self._work = Workplace.of(self._order, threads=self._threads)
        self._pool = ThreadPoolExecutor(self._threads, "decode")
        return self._work.fingerprint

    def work(self, span: Span) -> Part:
        return self._work.part(span, self._pool)


def predict_spans(
    work: Workplace, spans: Sequence[Span], actors: int | None, *, keep: Callable[[Span, Part], None]
) -> None:
    """Hands each span to an actor that is free and its part to `keep`, in the order in which they are done."""
    if not spans:
        return

    def accept(fingerprint: str) -> None:
        if fingerprint != work.fingerprint:
            raise DataError(
                "other files lie here on a machine of the cluster",
                where=work.order.data,
                fix="give model and images the same content and path on all of them",
            )

    def name(span: Span) -> tuple[str, str | None]:
        first, last = (work.images.ids[i] for i in (span[0], span[1] - 1))
        return f"the part of the images {first} to {last}", first

    with session("calibrant predict --engine ray", available_cores()) as cluster:
        ray = cluster.ray
        count, threads = layout(cluster.nodes, actors, len(spans))
        gpus = min(1.0, cluster.resource("GPU") / count)
        remote = ray.remote(num_cpus=threads, num_gpus=gpus, max_restarts=0, max_task_retries=0)(Actor)
        pool = Pool(
            ray,
            lambda: remote.remote(work.order, threads),
            spans,
            count=count,
            where="--engine ray",
            name=name,
            accept=accept,
        )
        for span, found in pool.run():
            if found.error is not None:
                raise DataError(found.error.what, where=found.error.where, fix=found.error.fix)
            keep(span, found)


def layout(nodes: Sequence[float], actors: int | None, spans: int) -> tuple[int, int]:
    """How many actors, and of how many threads each: as many as let all of them find a place on the nodes' CPUs, which
    an actor cannot have from two of them."""
    cores = [int(cpus) for cpus in nodes if cpus >= 1] or [1]
    count = min(actors or sum(-(-cpus // CORES) for cpus in cores), spans)
    fitting = (t for t in range(max(cores), 0, -1) if sum(cpus // t for cpus in cores) >= count)
    return count, next(fitting, 1)
