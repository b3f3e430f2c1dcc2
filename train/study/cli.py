"""`calibrant study`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrant.remote.ray_session import RAY_ADDRESS, joined

if TYPE_CHECKING:
    from calibrant.train.study.file import Part

_PATH = click.Path(path_type=Path)


@click.command(short_help="Compare methods with seeds, controls and one table.")
@click.argument("study", required=False, metavar="FILE.toml|NAME")
@click.option("--list", "listing", is_flag=True, help="The studies that come with the package.")
@click.option("--scale", default="small", show_default=True, help="How much of it: tiny, small, full, or its own.")
@click.option("--data", "places", multiple=True, metavar="[NAME=]DIR", help="Where a data set lies; repeatable.")
@click.option("--weights", type=_PATH, help="Local weights of the network, where the study starts from some.")
@click.option("--out", type=_PATH, help="Folder of the results. Default: studies/NAME-SCALE.")
@click.option("--seeds", type=click.IntRange(min=1), help="Fewer or more than the study says.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes, a thread each.")
@click.option("--shard", default="1/1", show_default=True, metavar="I/N", help="This machine's part of the runs.")
@click.option("--engine", type=click.Choice(["process", "ray"]), default="process", show_default=True)
@RAY_ADDRESS
@click.option("--reference", metavar="METHOD", help="Differences to this method in the place of the study's own.")
@click.option("--join", is_flag=True, help="Run nothing: the table of what is finished.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
def study(
    study: str | None,
    listing: bool,
    scale: str,
    places: tuple[str, ...],
    weights: Path | None,
    out: Path | None,
    seeds: int | None,
    workers: int,
    shard: str,
    engine: Any,
    ray_address: str | None,
    reference: str | None,
    join: bool,
    as_json: bool,
) -> None:
    """Run what is missing of a study and join it: one row per method, paired intervals, ranks, the controls beside.

    Killed anywhere it goes on: the same line runs only what has no result yet.

    \b
    calibrant study --list
    calibrant study fedlas/table1 --scale tiny --data cifar10=DIR
    calibrant study my-study.toml --data DIR --shard 1/2 --out /shared/my-study
    """
    import json

    from calibrant.errors import ConfigError
    from calibrant.progress import table
    from calibrant.train.study.file import names_of_studies, read_study, with_reference
    from calibrant.train.study.plan import plan_study
    from calibrant.train.study.run import join_study, progress_of, run_study, source_of
    from calibrant.train.study.write import TABLE_FILES, text

    if listing:
        click.echo(table(["study", "what"], names_of_studies().items(), left=2))
        return
    if study is None:
        raise ConfigError(
            "which study?", where="calibrant study", fix="give a file or a name of calibrant study --list"
        )
    file = read_study(study)
    if reference is not None:
        file = with_reference(file, reference, scale)
    name = Path(study).stem if study.endswith(".toml") else study.replace("/", "-")
    plan = plan_study(
        file,
        scale=scale,
        out=out or Path("studies") / f"{name}-{scale}",
        places=_places(places, file.data, [f.name for f in file.foreign]),
        weights=weights,
        seeds=seeds,
    )
    if join:
        done = progress_of(plan, source_of(plan))
    else:
        with joined(ray_address, engine=engine):
            done = run_study(
                plan, workers=workers, shard=shard, engine=engine, say=lambda line: click.echo(line, err=True)
            )
    if done.missing:
        click.echo(f"{done.finished} of {done.total} runs are finished; the same line goes on", err=True)
    found = join_study(plan)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else text(found))
    click.echo(f"{plan.out}: {', '.join(TABLE_FILES)}", err=True)


def _places(given: tuple[str, ...], data: Sequence[Part], foreign: list[str]) -> dict[str, Path]:
    """`--data DIR` where the study has one data set, or one whose recipe reads what lies in DIR; else NAME=DIR."""
    from calibrant.errors import ConfigError, did_you_mean

    names = [d.name for d in data]
    found = {}
    for text in given:
        name, equals, place = text.partition("=")
        if not equals:
            mine = names if len(names) == 1 else _of_layout(Path(text), data)
            if len(mine) != 1:
                raise ConfigError(f'of which of {", ".join(names)} is "{text}"?', where="--data", fix="give NAME=DIR")
            name, place = mine[0], text
        if name not in (*names, *foreign):
            raise ConfigError(f'no data "{name}"', where="--data", fix=did_you_mean(name, (*names, *foreign)))
        found[name] = Path(place)
    return found


def _of_layout(place: Path, data: Sequence[Part]) -> list[str]:
    """The data sets whose recipe reads a layout of its own that lies there."""
    from calibrant.errors import DataError
    from calibrant.images.layouts import layout_of
    from calibrant.train.recipe import recipe_table

    try:
        there = layout_of(place)
    except DataError:
        return []
    return [d.name for d in data if d.recipe and recipe_table(d.recipe)["data"]["layout"] == there]
