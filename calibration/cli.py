"""`calibrant calibrate` and `calibrant evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from calibrant.cli import DefaultCommandGroup
from calibrant.errors import ConfigError, did_you_mean


@click.group(cls=DefaultCommandGroup, default_command="fit")
def calibrate() -> None:
    """Fit a calibrator on a predictions file."""


@calibrate.command("fit")
@click.argument("predictions", type=click.Path(path_type=Path))
@click.option("--method", default="temperature", show_default=True, help="How to calibrate; `auto` compares and picks.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("calibrator.json"), show_default=True)
@click.option("--bins", default=15, show_default=True, help="Bins of the metrics that are reported.")
@click.option("--json", "as_json", is_flag=True, help="Print the calibrator as JSON.")
def fit_command(predictions: Path, method: str, out: Path, bins: int, as_json: bool) -> None:
    """Fit a calibrator on the labelled rows of PREDICTIONS and write it as JSON.

    \b
    Example: calibrant calibrate runs/first/predictions/val.parquet --method temperature --out calibrator.json
    """
    from calibrant.calibration.fitting import fit_file
    from calibrant.calibration.report.tables import interval, number

    calibrator = fit_file(predictions, method, bins=bins)
    calibrator.save(out)
    if as_json:
        click.echo(calibrator.to_json(), nl=False)
        return
    from calibrant.calibration.intervals import Measured
    from calibrant.progress import table

    rows = []
    for key, name, kind in (
        ("accuracy", "accuracy", "percent"), ("nll", "NLL", "number"), ("brier", "Brier score", "number"),
        ("ece", "ECE", "percent"), ("adaptive_ece", "adaptive ECE", "percent"),
    ):  # fmt: skip
        line = [name]
        for when in ("before", "after"):
            m = Measured(**calibrator.metrics[when][key])
            line += [number(m.value, kind), interval(m, kind)]
        rows.append([*line, number(m.null, kind)])
    click.echo(describe(calibrator))
    click.echo(table(("", "before", "95 % interval", "after", "95 % interval", "if calibrated"), rows))
    click.echo(f"Wrote {out}")


def describe(calibrator: Any) -> str:
    rows = calibrator.fitted_on["rows"]
    if calibrator.method == "temperature":
        error = calibrator.fit.get("standard_error")
        spread = f" +- {1.96 * error:.3f}" if error is not None else ""
        note = f"\nNote: {calibrator.fit['note']}" if calibrator.fit.get("note") else ""
        return f"T = {calibrator.parameters['temperature']:.4f}{spread} from {rows:,} rows.{note}"
    return f"{calibrator.method} fitted on {rows:,} rows."


@click.command()
@click.argument("predictions", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--calibrator",
    "calibrators",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Evaluate through it as well; may be given several times.",
)
@click.option("--bins", default=15, show_default=True, help="Equal-width bins.")
@click.option("--target-prior", default=None, help="`uniform`, or a JSON file with one share for each class.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a self-contained HTML page.")
@click.option("--figure", type=click.Path(path_type=Path), help="Write the reliability diagram (.png, .svg, .pdf).")
def evaluate(
    predictions: tuple[Path, ...], calibrators: tuple[Path, ...], bins: int, target_prior: str | None, as_json: bool,
    report: Path | None, figure: Path | None,
) -> None:  # fmt: skip
    """Measure accuracy and calibration of PREDICTIONS, with intervals and what noise alone would show.

    \b
    Example: calibrant evaluate test.parquet --calibrator calibrator.json --report report.html
    """
    from calibrant.calibration.fitting import evaluate_files
    from calibrant.calibration.report.tables import text_table

    if figure is not None and figure.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(
            f'cannot draw a "{figure.suffix}" figure',
            where="--figure",
            fix=did_you_mean(figure.suffix, [".png", ".svg", ".pdf"]),
        )
    models = evaluate_files(predictions, calibrators, bins=bins, target_prior=target_prior)
    if figure is not None:
        from calibrant.calibration.report.figures import reliability_figure, save

        save(reliability_figure(models, bins=bins), figure)
    if report is not None:
        from datetime import datetime

        from calibrant.atomic import write_text
        from calibrant.calibration.report.html import html_report

        title = "Calibration of " + ", ".join(dict.fromkeys(p.name for p in predictions))
        made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
        write_text(report, html_report(models, title=title, bins=bins, made=made))
    if as_json:
        click.echo(json.dumps({"models": [{"name": m.name, **m.evaluation.to_dict()} for m in models]}, indent=2))
        return
    click.echo(text_table(models))
    for kind, path in (("figure", figure), ("report", report)):
        if path is not None:
            click.echo(f"Wrote {kind} {path}")
