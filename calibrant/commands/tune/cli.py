"""`calibrant tune`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from calibrant.overwrite import OVERWRITE, refuse_to_replace
from calibrant.words import Words

_PATH = click.Path(path_type=Path)


def _precisions() -> tuple[str, ...]:
    from calibrant.commands.tune.candidates import MADE

    return MADE


@click.command()
@click.argument("model", type=_PATH, metavar="MODEL.onnx")
@click.option("--data", type=_PATH, required=True, help="Labelled pictures that nothing was fitted on, any layout.")
@click.option("--out", type=_PATH, default="tuned", show_default=True, metavar="DIR", help="For all that is written.")
@click.option("--p99", metavar="TIME", help="99 of 100 answers must come within it: 20ms, 0.2s.")
@click.option("--also", type=_PATH, multiple=True, metavar="OTHER.onnx", help="Another file of the same classes.")
@click.option(
    "--precision",
    "precisions",
    type=Words(_precisions),
    multiple=True,
    metavar="NAME",
    help="To make of MODEL: int8, fp16; fp32 makes none. [default: int8, and fp16 with a GPU]",
)
@click.option(
    "--max-accuracy-loss", default=1.0, show_default=True, type=click.FloatRange(0, 100), help="Points, proven."
)
@click.option("--max-ece-gain", default=2.0, show_default=True, type=click.FloatRange(0, 100), help="Points, proven.")
@click.option("--unproven", is_flag=True, help="Take files too of which too few pictures can tell.")
@click.option("--without-sets", is_flag=True, help="Take files too without prediction sets, though MODEL has them.")
@click.option("--pictures", default=4000, show_default=True, type=click.IntRange(16), help="Of --data, at most.")
@click.option("--time", "limit", default="5m", show_default=True, help="Of measuring servers: 90s, 10m, 1h.")
@click.option("--seconds", default=2.0, show_default=True, type=click.FloatRange(0.2), help="Of load a measurement.")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tune(
    model: Path,
    data: Path,
    out: Path,
    p99: str | None,
    also: tuple[Path, ...],
    precisions: tuple[str, ...],
    max_accuracy_loss: float,
    max_ece_gain: float,
    unproven: bool,
    without_sets: bool,
    pictures: int,
    limit: str,
    seconds: float,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Measure how MODEL.onnx is best served on this machine, and write the server's configuration.

    Starts real servers with other numbers of workers and threads and other batch caps, for the file as it is, for it
    quantized, and for other files of the same classes (fewer tokens, a smaller network). A file whose accuracy or
    calibration is not shown to hold, on the same pictures, is not served. Writes DIR/serve.toml, tune.json, tune.png.

    \b
    Examples:
      calibrant tune model.onnx --data photos/test --p99 20ms
      calibrant tune vit.onnx --data photos/test --also vit-keep-0.7.onnx --time 10m
      calibrant serve --config tuned/serve.toml
    """
    from calibrant.commands.fit.plan import minutes_of
    from calibrant.commands.tune.candidates import MADE, Limits, candidates
    from calibrant.commands.tune.measure import measure, measured_cap
    from calibrant.commands.tune.result import CONFIG, Result
    from calibrant.commands.tune.search import Search, choose
    from calibrant.commands.tune.settings import layouts
    from calibrant.errors import ConfigError, did_you_mean
    from calibrant.serve.config import ModelSpec, ServeConfig
    from calibrant.serve.engine.curve_store import cpu_name
    from calibrant.serve.engine.providers import available_cores
    from calibrant.serve.engine.session import Session
    from calibrant.serve.planning.cli import seconds as seconds_of
    from calibrant.serve.processes.layout import chosen

    for word in precisions:
        if word not in MADE:
            raise ConfigError(f'no precision "{word}"', where="--precision", fix=did_you_mean(word, MADE))
    wished, minutes = None if p99 is None else seconds_of(p99), minutes_of(limit)
    refuse_to_replace(out, overwrite=overwrite, marker=CONFIG)

    def say(line: str) -> None:
        click.echo(line, err=True)

    session = Session(model)
    gpu = session.providers[0] not in ("CPUExecutionProvider", "OpenVINOExecutionProvider")
    files, judging = candidates(
        model,
        data,
        out,
        also=also,
        precisions=precisions or None,
        most=pictures,
        limits=Limits(max_accuracy_loss / 100, max_ece_gain / 100, not unproven, not without_sets),
        say=say,
    )
    cores = available_cores()
    tried = layouts(cores, first=chosen(ServeConfig([ModelSpec(model)]))[0], gpu=gpu)
    search = Search(
        lambda file, setting: measure(file.path, setting, p99=wished, seconds=seconds),
        lambda file, layout: measured_cap(file.path, layout),
        60 * minutes,
        say=say,
    )
    trials = search.over(files, tried)
    machine = f"{cpu_name() or 'this machine'}, {cores} cores"
    name = re.sub(r"[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+", "-", session.own_name).strip("-") or "model"
    result = Result(machine, name, files, judging, wished, trials, choose(trials), search.left_out)
    result.write(out)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2))
        return
    click.echo(f"{result.text()}\nWrote {out / CONFIG}: calibrant serve --config {out / CONFIG}")
