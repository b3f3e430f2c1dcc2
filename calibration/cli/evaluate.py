"""`calibrant evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.calibration.cli.scores import asked, score_options
from calibrant.calibration.cli.stakes import MARGIN, POLICY
from calibrant.errors import CheckFailed, ConfigError, did_you_mean

if TYPE_CHECKING:
    from calibrant.calibration.compare import Difference
    from calibrant.calibration.ood_files import OodRow

_PATH = click.Path(path_type=Path)
_FIGURES = (".png", ".svg", ".pdf")


@click.command()
@click.argument("predictions", nargs=-1, required=True, type=_PATH)
@click.option(
    "--calibrator",
    "calibrators",
    multiple=True,
    type=_PATH,
    help="Evaluate through it as well; may be given several times.",
)
@click.option("--bins", default=15, show_default=True, help="Equal-width bins.")
@click.option(
    "--target-prior",
    metavar="PRIOR",
    help="Class shares of the place of use: uniform, train, 0.2,0.8, crane=0.2,*=0.8 or a file (JSON, CSV, Parquet). "
    "Alone it weights the rows to them; with --adjust it is what the correction leads to.",
)
@click.option(
    "--adjust",
    type=float,
    metavar="STRENGTH",
    help="Correct the class prior with this total strength, in place of what a calibrator says.",
)
@click.option(
    "--cross-fit",
    type=int,
    metavar="K",
    help="Judge each row by a calibrator that has not seen it, where the calibrator was fitted on these very rows.",
)
@score_options
@POLICY
@MARGIN
@click.option(
    "--require",
    "required",
    metavar="RULES",
    help='Exit with 1 where a model breaks one, e.g. "ece<0.05,accuracy.low>80%,verdict>=care"; for pipelines.',
)
@click.option("--compare", is_flag=True, help="Also show differences from the first, with paired intervals.")
@click.option(
    "--ood",
    "foreign",
    multiple=True,
    type=_PATH,
    help="Predictions of foreign images: how well is it told? Repeatable.",
)
@click.option(
    "--ood-fit", type=_PATH, help="With --ood: labelled rows with features, for Mahalanobis distance and kNN."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--json-out", type=_PATH, help="Write the JSON to a file.")
@click.option("--report", type=_PATH, help="Write a self-contained HTML page.")
@click.option("--figure", type=_PATH, help="Write the reliability diagram (.png, .svg, .pdf).")
def evaluate(
    predictions: tuple[Path, ...],
    calibrators: tuple[Path, ...],
    bins: int,
    target_prior: str | None,
    adjust: float | None,
    cross_fit: int | None,
    score_kind: Kind | None,
    outcome: Outcome | None,
    policy: str | None,
    margin: float | None,
    required: str | None,
    compare: bool,
    foreign: tuple[Path, ...],
    ood_fit: Path | None,
    as_json: bool,
    json_out: Path | None,
    report: Path | None,
    figure: Path | None,
) -> None:
    """Measure accuracy and calibration of PREDICTIONS, with intervals and what noise alone would show.

    A run folder stands for its test predictions and brings its calibrator.json. Several files, and each file with and
    without its calibrators, stand side by side.

    \b
    Examples:
      calibrant evaluate test.parquet --calibrator calibrator.json --report report.html
      calibrant evaluate runs/ce/predictions/test.parquet runs/vace/predictions/test.parquet --compare
      calibrant evaluate test.parquet --calibrator calibrator.json --require "ece<0.05,verdict>=care"
      calibrant evaluate test.parquet --ood svhn.parquet --ood-fit val.parquet
    """
    from calibrant.atomic import write_json, write_text
    from calibrant.calibration.cli.independent import refuse_options, tell_labels
    from calibrant.calibration.evaluate_files import evaluate_files
    from calibrant.calibration.independent.files import evaluate_labels, is_independent
    from calibrant.calibration.label_shift.files import resolved, served_file
    from calibrant.calibration.report.tables import difference_table, ood_table, text_table
    from calibrant.calibration.subjects import of_run
    from calibrant.calibration.verdict.labels_needed import Claims, labels_table
    from calibrant.calibration.verdict.policy import margin_of
    from calibrant.calibration.verdict.requirement import broken, read_requirements
    from calibrant.calibration.verdict.text import verdicts

    if is_independent(predictions[0], asked(score_kind, outcome)):
        others = {
            "--target-prior": target_prior, "--adjust": adjust, "--cross-fit": cross_fit, "--require": required,
            "--compare": compare or None, "--ood": foreign or None, "--ood-fit": ood_fit, "--figure": figure,
        }  # fmt: skip
        refuse_options(others)
        models_ = evaluate_labels(
            predictions, calibrators, bins=bins, asked=asked(score_kind, outcome), margin=margin_of(policy, margin)
        )
        tell_labels(models_, predictions, as_json=as_json, json_out=json_out, report=report)
        return
    requirements = () if required is None else read_requirements(required)
    let_pass = margin_of(policy, margin)
    if figure is not None and figure.suffix.lower() not in _FIGURES:
        raise ConfigError(
            f'cannot draw a "{figure.suffix}" figure', where="--figure", fix=did_you_mean(figure.suffix, _FIGURES)
        )
    if served_file(target_prior) is not None:
        if len(predictions) > 1:
            raise ConfigError("an estimate is of one model", where="--target-prior", fix="give one predictions file")
        target_prior = resolved(target_prior, of_run(predictions[0])[0])
    models = evaluate_files(
        predictions,
        calibrators,
        bins=bins,
        target_prior=target_prior,
        adjust=adjust,
        cross_fit=cross_fit,
        asked=asked(score_kind, outcome),
        margin=let_pass,
    )
    block: dict[str, Any] = {
        "margin": let_pass,
        "models": [
            {
                "name": m.name,
                "in_sample": m.in_sample,
                "notes": list(m.notes),
                "verdict": None if m.verdict is None else m.verdict.to_dict(),
                "labels_needed": labels_table(Claims.of_bins(m.statistics.bins(bins)), margin=let_pass),
                **m.evaluation.to_dict(),
            }
            for m in models
        ],
    }
    differences: dict[str, dict[str, Difference]] = {}
    if compare:
        from calibrant.calibration.compare import compare_files

        if target_prior is not None and adjust is None:
            raise ConfigError("differences are of unweighted rows", where="--compare", fix="leave --target-prior out")
        if cross_fit is not None:
            raise ConfigError("differences are not cross-fitted", where="--compare", fix="leave --cross-fit out")
        differences = compare_files(
            predictions,
            calibrators,
            bins=bins,
            adjust=adjust,
            target_prior=target_prior,
            asked=asked(score_kind, outcome),
        )
    if compare:
        block["differences"] = {n: {k: d.to_dict() for k, d in ds.items()} for n, ds in differences.items()}
    ood_rows: list[OodRow] = []
    ood_notes: list[str] = []
    if foreign:
        from calibrant.calibration.ood_files import evaluate_ood

        ood_rows, ood_notes = evaluate_ood(predictions, foreign, calibrators, reference=ood_fit)
        block["ood"] = [row.to_dict() for row in ood_rows]
    elif ood_fit is not None:
        raise ConfigError("goes with --ood", where="--ood-fit", fix="give the predictions of foreign images too")
    if figure is not None:
        from calibrant.calibration.report.figures import reliability_figure, save

        save(reliability_figure(models, bins=bins), figure)
    if report is not None:
        from datetime import datetime

        from calibrant.calibration.report.html import html_report

        title = "Calibration of " + ", ".join(dict.fromkeys(p.name for p in predictions))
        made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
        write_text(report, html_report(models, title=title, bins=bins, made=made))
    if json_out is not None:
        write_json(json_out, block)
    if as_json:
        click.echo(json.dumps(block, indent=2))
    else:
        said = [f"Note: {note}" for m in models for note in m.notes]
        click.echo("\n".join([*said, verdicts(models)]) + "\n\n" + text_table(models))
        if compare:
            click.echo("\n" + difference_table(models[0].name, differences))
        if foreign:
            click.echo("\n" + "".join(f"Note: {note}\n" for note in ood_notes) + ood_table(ood_rows))
        for kind, path in (("figure", figure), ("report", report), ("JSON", json_out)):
            if path is not None:
                click.echo(f"Wrote {kind} {path}")
    failed = broken(requirements, models)
    if failed:
        raise CheckFailed("\n  ".join(failed), where="--require")
    if requirements and not as_json:
        click.echo("Holds: " + ", ".join(map(str, requirements)))
