"""`calibrant inspect` and the editors of deployed files. Loads neither torch nor onnx."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import CheckFailed, ConfigError, FormatError
from calibrant.overwrite import OVERWRITE, refuse_to_replace

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON on stdout.")
@click.option("--markdown", "as_markdown", is_flag=True, help="A model card in Markdown on stdout.")
@click.option("--check", is_flag=True, help="Exit with 1 if weights or graph do not match the recorded hashes.")
def inspect(model: Path, as_json: bool, as_markdown: bool, check: bool) -> None:
    """Show what MODEL.onnx says about itself.

    \b
    calibrant inspect birds.onnx
    calibrant inspect birds.onnx --markdown > MODEL_CARD.md
    """
    from calibrant.export.checks.card_text import markdown, summary
    from calibrant.export.checks.inspection import describe, foreign_lines

    found = describe(model)
    card = found.card
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    elif card is None:
        click.echo("\n".join(foreign_lines(found)))
    elif as_markdown:
        click.echo(markdown(card), nl=False)
    else:
        click.echo(summary(card, model))
        click.echo("\n".join(f"  {line}" for line in found.notes))
    if check and not found.intact:
        raise CheckFailed("; ".join(found.notes), where=model)
    if as_markdown and card is None:
        raise FormatError("an ONNX file without a calibrant block has no card", where=model)


_Edit = Callable[..., None]


def writes(command: _Edit) -> _Edit:
    """Where an editor writes, and how it says what it made: an option each, checked before anything is done."""

    @functools.wraps(command)
    def checked(*, out: Path | None, overwrite: bool, as_json: bool, **given: Any) -> None:
        refuse_to_replace(out, overwrite=overwrite)
        command(out=out, as_json=as_json, **given)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="The model card as JSON on stdout."),
        OVERWRITE,
        click.option("--out", type=PATH, help="Write here instead of changing MODEL.onnx in place."),
    ):
        checked = option(checked)
    return checked


@click.command()
@click.argument("model", type=PATH)
@click.argument("calibrator", type=PATH, required=False)
@click.option("--remove", is_flag=True, help="Take the calibrator out.")
@writes
def recalibrate(model: Path, calibrator: Path | None, remove: bool, out: Path | None, as_json: bool) -> None:
    """Put another calibrator into MODEL.onnx, without torch and without its run.

    \b
    calibrant recalibrate birds.onnx new-calibrator.json
    """
    from calibrant.calibration import Calibrator
    from calibrant.export import edit

    if remove == (calibrator is not None):
        raise ConfigError("give a calibrator.json, or --remove", where="calibrant recalibrate")
    _done(
        edit.recalibrate(model, None if calibrator is None else Calibrator.load(calibrator), out=out),
        out or model,
        as_json,
    )


@click.command()
@click.argument("model", type=PATH)
@click.option("--strength", type=float, help="TOTAL strength of the correction, what training absorbed included.")
@click.option(
    "--target-prior",
    help="uniform, train, shares like 0.2,0.8 or crane=0.2,gull=0.8, a file of them, or estimate:SERVED.parquet, the "
    "shares that unlabelled predictions show.",
)
@click.option(
    "--labelled",
    type=PATH,
    help="Labelled predictions of this model: an estimate needs them, and sets and threshold are fitted again on them.",
)
@click.option("--train-prior", help="Shares of the training set, for a file that does not know them.")
@writes
def adjust(
    model: Path,
    strength: float | None,
    target_prior: str | None,
    labelled: Path | None,
    train_prior: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Correct MODEL.onnx for another class prior, or by another strength.

    \b
    calibrant adjust birds.onnx --strength 1 --target-prior spring.json
    calibrant adjust birds.onnx --strength 1 --target-prior estimate:june.parquet --labelled val.parquet
    """
    from calibrant.export import edit

    card = edit.adjust(model, strength, target_prior=target_prior, train_prior=train_prior, labelled=labelled, out=out)
    _done(card, out or model, as_json)


@click.command("set-threshold")
@click.argument("model", type=PATH)
@click.argument("confidence", type=float, required=False)
@click.option("--never", is_flag=True, help="Take the threshold out.")
@writes
def set_threshold(model: Path, confidence: float | None, never: bool, out: Path | None, as_json: bool) -> None:
    """Set the confidence under which a server abstains.

    \b
    calibrant set-threshold birds.onnx 0.8
    """
    from calibrant.export import edit

    if never == (confidence is not None):
        raise ConfigError("give a confidence, or --never", where="calibrant set-threshold")
    _done(edit.set_threshold(model, confidence, out=out), out or model, as_json)


@click.command()
@click.argument("model", type=PATH)
@click.argument("names", type=PATH)
@writes
def relabel(model: Path, names: Path, out: Path | None, as_json: bool) -> None:
    """Rename classes: NAMES is a text file with one name a line, or JSON: a list, or a table from old to new.

    \b
    calibrant relabel birds.onnx german.json
    """
    from calibrant.artifacts.class_names import read_names_or_table
    from calibrant.export import edit

    _done(edit.relabel(model, read_names_or_table(names), out=out), out or model, as_json)


def _done(card: ModelCard, path: Path, as_json: bool) -> None:
    from calibrant.export.checks.card_text import summary

    click.echo(json.dumps(card.to_dict(), indent=2, ensure_ascii=False) if as_json else summary(card, path))
