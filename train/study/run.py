"""`calibrant study`: run what is missing, join what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.errors import ConfigError, ModelError
from calibrant.train.jobs.job import Job, read_result
from calibrant.train.jobs.run import Engine, run_jobs
from calibrant.train.jobs.shard import own_part, read_shard
from calibrant.train.study.drawn import draw_missing
from calibrant.train.study.figures import Shown, write_figures
from calibrant.train.study.joined import Block, Entry, Joined, join
from calibrant.train.study.plan import Cell, Source, StudyPlan, Trainings
from calibrant.train.study.score import AS_TRAINED, norms_of, smoothing_of
from calibrant.train.study.write import write_joined


@dataclass(frozen=True)
class Progress:
    total: int
    finished: int
    missing: tuple[Cell, ...]


def run_study(
    plan: StudyPlan,
    *,
    workers: int = 1,
    shard: str = "1/1",
    engine: Engine = "process",
    say: Callable[[str], None] = lambda line: None,
) -> Progress:
    """Runs what is missing. What takes a number from another method's run waits for that; shards wait for no one."""
    part = read_shard(shard)
    if not plan.data:
        raise ConfigError("no data", where="calibrant study", fix=f"pass --data {plan.study.data[0].name}=DIR")
    (plan.out / "runs").mkdir(parents=True, exist_ok=True)
    source = source_of(plan)
    for seed in plan.seeds:  # one after the other, so that a study that was stopped is still balanced
        _run_seed(
            plan, source, own_part([cell for cell in plan.cells() if cell.seed == seed], part), workers, engine, say
        )
    return progress_of(plan, source)


def _run_seed(
    plan: StudyPlan, source: Source, cells: Sequence[Cell], workers: int, engine: Engine, say: Callable[[str], None]
) -> None:
    """What has no result; then, as long as there is any, what waited for it."""
    ran: set[str] = set()
    while True:
        ready = [job for cell in cells if (job := source.job(cell)) is not None]
        todo: list[Job] = [job for job in ready if read_result(plan.out, job.key) is None]
        if not todo:
            return
        if any(job.key in ran for job in todo):
            raise ModelError("a run ended without a result", where=plan.out)
        ran |= {job.key for job in todo}
        say(f"seed {cells[0].seed}: {len(cells) - len(todo)} of {len(cells)} runs are finished or wait for others")
        run_jobs(todo, plan.out, workers=workers, engine=engine, say=say)


def source_of(plan: StudyPlan) -> Source:
    """What makes jobs of the study's cells; images that the study draws are there afterwards."""
    draw_missing(plan.out, plan.data, plan.places)
    if plan.study.kind == "heads":
        from calibrant.train.study.heads import HeadRuns

        return HeadRuns(plan)
    if plan.study.kind == "points":
        from calibrant.train.study.points import Points

        return Points(plan)
    return Trainings(plan)


def join_study(plan: StudyPlan) -> Joined:
    """The table of what is finished, written beside the results."""
    source, study = source_of(plan), plan.study
    blocks: list[Block] = []
    tidy: list[dict[str, object]] = []
    notes: list[str] = []
    for d in plan.data:
        for n in plan.networks:
            runs = {m.name: _runs(plan, source, d.name, n.name, m.name, notes) for m in plan.methods}
            for view in (AS_TRAINED, *study.posthoc):
                entries = [
                    Entry(
                        m.name,
                        {seed: source.score(job, result, view) for seed, (job, result) in runs[m.name].items()},
                        m.control,
                        {seed: _measured(result) for seed, (_, result) in runs[m.name].items()},
                        m.published,
                    )
                    for m in plan.methods
                ]
                block = join(entries, plan.metrics, reference=study.reference, data=d.name, network=n.name, view=view)
                blocks += [] if block is None else [block]
                tidy += [
                    {
                        "data": d.name,
                        "network": n.name,
                        "method": e.method,
                        "view": view or "as trained",
                        "seed": seed,
                        "metric": metric,
                        "value": found.metrics[metric],
                    }
                    for e in entries
                    for seed, found in e.scores.items()
                    for metric in plan.metrics
                ]
    done = progress_of(plan, source)
    joined = Joined(
        study.title,
        plan.scale_name,
        study.reference,
        plan.metrics,
        tuple(blocks),
        done.finished,
        done.total,
        tuple(dict.fromkeys(notes)),
    )
    write_joined(plan.out, joined, tidy)
    write_figures(plan.out, study.figure, joined, _shown(plan, source))
    return joined


def _shown(plan: StudyPlan, source: Source) -> Shown:
    """Of the first data and network."""
    kinds = {figure.kind for figure in plan.study.figure}
    numbers = [figure.of for figure in plan.study.figure if figure.kind == "epochs"]
    norms, smoothing, planes = {}, {}, {}
    if "boundary" in kinds and plan.study.kind == "points":
        from calibrant.train.study.points import plane_of

        for m in plan.methods:
            runs = _runs(plan, source, plan.data[0].name, plan.networks[0].name, m.name, [])
            if runs:
                planes[m.name] = plane_of(next(iter(runs.values()))[1])
    if kinds & {"norms", "smoothing"} and isinstance(source, Trainings):
        for m in plan.methods:
            runs = _runs(plan, source, plan.data[0].name, plan.networks[0].name, m.name, [])
            first = next(iter(runs.values()), None)
            if first is None:
                continue
            job, result = first
            found = norms_of(plan.out / job.folder / "predictions" / "test.parquet") if "norms" in kinds else None
            norms.update({} if found is None else {m.name: found})
            strength = smoothing_of(result["config"]["loss"])
            smoothing.update({} if strength is None else {m.name: strength})
    return Shown({number: _curves(plan, source, number) for number in numbers}, norms, smoothing, planes)


def _measured(result: Mapping[str, Any]) -> dict[str, float]:
    """What the loss or the network told, and what the run cost."""
    cost = {"cpu_seconds": result.get("seconds"), "peak_mb": result.get("peak_mb")}
    return {**result.get("measured", {}), **{name: value for name, value in cost.items() if value is not None}}


def _curves(plan: StudyPlan, source: Source, number: str) -> dict[str, list[float]]:
    """A number that a loss reports, epoch by epoch, mean over the seeds of the first data and network."""
    found = {}
    for m in plan.methods:
        runs = _runs(plan, source, plan.data[0].name, plan.networks[0].name, m.name, [])
        told = [[line["loss"].get(number) for line in result.get("epochs", [])] for _, result in runs.values()]
        whole = [values for values in told if values and None not in values[1:]]
        if whole:  # some numbers begin with the second epoch, as there is none before the first to compare with
            found[m.name] = [
                float(np.mean([v[i] for v in whole if v[i] is not None] or [np.nan]))
                for i in range(min(map(len, whole)))
            ]
    return found


def _runs(
    plan: StudyPlan, source: Source, data: str, network: str, method: str, notes: list[str]
) -> dict[int, tuple[Any, dict[str, Any]]]:
    """The finished runs of a method by seed; those that failed are told."""
    found = {}
    for seed in plan.seeds:
        job = source.job(Cell(data, network, method, seed))
        result = None if job is None else read_result(plan.out, job.key)
        if job is None or result is None:
            continue
        if "failed" in result:
            notes.append(f"{method} on {data}, seed {seed}: {result['failed']}")
        else:
            found[seed] = (job, result)
    return found


def progress_of(plan: StudyPlan, source: Source) -> Progress:
    cells = plan.cells()
    missing = tuple(cell for cell in cells if _result(plan.out, source, cell) is None)
    return Progress(len(cells), len(cells) - len(missing), missing)


def _result(out: Path, source: Source, cell: Cell) -> object | None:
    job = source.job(cell)
    return None if job is None else read_result(out, job.key)
