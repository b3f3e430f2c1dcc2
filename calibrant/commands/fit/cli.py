"""`calibrant fit`."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from calibrant.commands.fit.plan import PRESETS, Wanted, minutes_of
from calibrant.train.known_words import MODEL

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("images", type=_PATH)
@click.option("--out", type=_PATH, metavar="DIR", help="Folder for everything. Default: runs/ and the name of IMAGES.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="balanced",
    show_default=True,
    help="fast: heads on a frozen backbone; balanced: fine-tunes as well; best: three times as long.",
)
@click.option(
    "--time", "limit", metavar="TIME", help="90s, 10m or 2h: the schedule is made to fit. Default: by preset."
)
@click.option("--target-prior", metavar="PRIOR", help="Class shares in use: uniform, train, a=0.2,b=0.8, a file.")
@click.option(
    "--model", type=MODEL, help="Backbone, any of timm. Default: the best that is in the cache or that the hub gives."
)
@click.option("--weights", type=_PATH, help="Local .safetensors or .pth file of the backbone.")
@click.option("--image-size", type=click.IntRange(16), help="Pixels a side. Default: the backbone's own.")
@click.option("--groups", metavar="COLUMN", help="CSV or Parquet: its values are never divided between folds.")
@click.option("--seed", type=int, default=1, show_default=True, help="Same seed, same folds and same result.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
@click.option(
    "--decode-threads",
    "workers",
    type=click.IntRange(0),
    help="Threads that decode images. Default: one per core, at most 8.",
)
@click.option("--overwrite", is_flag=True, help="Throw away a fit that is in --out already.")
@click.option("--serve", "serving", is_flag=True, help="Serve the file when it is done.")
@click.option("--open", "opening", is_flag=True, help="Open the report when it is done.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def fit(
    images: Path,
    out: Path | None,
    limit: str | None,
    workers: int | None,
    overwrite: bool,
    serving: bool,
    opening: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a calibrated classifier of a folder of IMAGES: one command, one folder, one file to serve.

    Looks at the data, takes the best backbone there is, tries several heads, fine-tunes if time and preset allow,
    calibrates on rows that were not trained on, exports and proves one file, and says whether its confidence can be
    trusted. IMAGES may lie in any layout that training reads. Interrupted? The same line goes on where it stopped.

    \b
    Examples:
      calibrant fit photos
      calibrant fit photos --preset fast --serve
      calibrant fit photos --weights resnet50.safetensors --time 10m --out runs/birds
      calibrant fit photos --target-prior uniform --json
    """
    from calibrant.commands.fit.run import run

    wanted = Wanted(images=images, minutes=None if limit is None else minutes_of(limit), **options)
    where = out or Path("runs") / images.resolve().stem
    threads = min(8, os.cpu_count() or 1) if workers is None else workers

    def say(line: str) -> None:
        click.echo(line, err=True)

    try:
        with each_warning_once():
            result = run(wanted, where, overwrite=overwrite, workers=threads, say=say)
    except KeyboardInterrupt:
        say(f"go on with: {shlex.join(['calibrant', 'fit', *_again(images, out, limit, options)])}")
        raise
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        click.echo(result["text"])
    if opening:
        click.launch(str(where / "report.html"))
    if serving:
        from calibrant.serve.cli import serve

        words = [str(where / "model.onnx"), "--feedback-log", str(where / "feedback")]
        serve.main([*words, "--workers", "1"], standalone_mode=False)  # others would be started by this command's line


def _again(images: Path, out: Path | None, limit: str | None, options: dict[str, Any]) -> list[str]:
    """The options that were given, as they were."""
    defaults = {p.name: p.default for p in fit.params}
    words = [str(images)]
    for name, value in {"out": out, "time": limit, **options}.items():
        if value is not None and value != defaults.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Six heads in ten folds have the same to say sixty times; numbers apart, a sentence is said once."""
    seen: set[object] = set()

    def first(record: logging.LogRecord) -> bool:
        words = tuple(a for a in record.args if isinstance(a, str)) if isinstance(record.args, tuple) else ()
        key = (record.name, record.msg, words)
        fresh = key not in seen
        seen.add(key)
        return fresh

    handlers = [h for h in (*logging.getLogger().handlers, logging.lastResort) if h is not None]
    for handler in handlers:
        handler.addFilter(first)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(first)
