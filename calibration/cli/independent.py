"""`calibrant evaluate` and `calibrant calibrate` on independent labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from calibrant.artifacts.foreign.read import Asked
from calibrant.atomic import write_json, write_text
from calibrant.calibration.compare import Difference
from calibrant.calibration.independent.files import (
    LabelsModel,
    base_rates_of,
    evaluate_labels,
    fit_labels_file,
    label_names,
)
from calibrant.calibration.independent.report import html_report, text_report
from calibrant.errors import ConfigError


def refuse_options(given: Mapping[str, Any]) -> None:
    """Options that mean something only where a row has exactly one class."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError("is for files with one class a row; the labels of this one are independent", where=name)


def tell_labels(
    models: Sequence[LabelsModel],
    predictions: Sequence[Path],
    differences: dict[str, dict[str, Difference]] | None = None,
    *,
    as_json: bool,
    json_out: Path | None,
    report: Path | None,
) -> None:
    block: dict[str, Any] = {"models": [m.to_dict() for m in models]}
    if differences is not None:
        block["differences"] = {n: {k: d.to_dict() for k, d in ds.items()} for n, ds in differences.items()}
    if report is not None:
        from datetime import datetime

        from calibrant.calibration.subjects import file_names

        title = "Calibration of " + ", ".join(file_names(predictions))
        made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
        write_text(report, html_report(models, title=title, made=made))
    if json_out is not None:
        write_json(json_out, block)
    if as_json:
        click.echo(json.dumps(block, indent=2))
        return
    click.echo(text_report(models))
    if differences is not None:
        from calibrant.calibration.report.tables import difference_table

        click.echo("\nMeans of labels, paired by row:\n" + difference_table(models[0].name, differences))
    for kind, path in (("report", report), ("JSON", json_out)):
        if path is not None:
            click.echo(f"Wrote {kind} {path}")


def calibrate_labels(
    predictions: Path,
    method: str,
    out: Path,
    target_prior: str | None,
    asked: Asked | None,
    *,
    bins: int,
    margin: float,
    as_json: bool,
) -> None:
    """`target_prior`: base rates of the place of use."""
    target = None if target_prior is None else base_rates_of(target_prior, label_names(predictions, asked))
    fitted = fit_labels_file(predictions, method, target=target, asked=asked)
    fitted.save(out)
    if as_json:
        click.echo(fitted.to_json(), nl=False)
        return
    few = fitted.fit.get("few_rows")
    if few:
        names = label_names(predictions, asked)
        click.echo("Too few rows of their own, so the common temperature: " + ", ".join(names[k] for k in few))
    chosen = "" if method == fitted.method else f" ({method} chose it)" if method == "auto" else " (with base rates)"
    click.echo(f"{fitted.method}{chosen}, {fitted.classes} independent labels, {fitted.fitted_on['rows']:,} rows")
    if target is None:  # moved to other base rates, these rows are no measure
        models = evaluate_labels([predictions], [out], bins=bins, asked=asked, margin=margin)
        click.echo("\n" + text_report(models, most=10))
    click.echo(f"Wrote {out}")
