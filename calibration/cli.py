"""`calibrant calibrate` and `calibrant evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrant.command_group import DefaultCommandGroup
from calibrant.errors import CheckFailed, ConfigError, did_you_mean

if TYPE_CHECKING:
    from calibrant.calibration.calibrators.base import Calibrator
    from calibrant.calibration.compare import Difference

_PATH = click.Path(path_type=Path)
_FIGURES = (".png", ".svg", ".pdf")


@click.group(cls=DefaultCommandGroup, default_command="fit")
def calibrate() -> None:
    """Fit a calibrator on a predictions file."""


@calibrate.command("fit")
@click.argument("predictions", type=_PATH)
@click.option("--method", default="temperature", show_default=True, help="How to calibrate; `auto` compares and picks.")
@click.option("--out", type=_PATH, default=Path("calibrator.json"), show_default=True, help="Where to write it.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the method, e.g. bins=20.")
@click.option(
    "--target-prior",
    metavar="PRIOR",
    help="Class shares of the place of use: uniform, train, 0.2,0.8, crane=0.2,*=0.8, a file (JSON, CSV, Parquet), "
    "or estimate:SERVED.parquet, what unlabelled predictions show. Alone it weights the rows to "
    "them; with --adjust it is what the correction leads to.",
)
@click.option(
    "--adjust",
    type=float,
    metavar="STRENGTH",
    help="Correct the class prior with this total strength; 1 is Bayes' rule. The file holds it, and all who read it "
    "apply it.",
)
@click.option(
    "--rows-follow",
    type=click.Choice(["target", "train"]),
    default="target",
    show_default=True,
    help="With --adjust, which prior the rows have. target: fit inside the correction; train: correct afterwards.",
)
@click.option("--probabilities", is_flag=True, help="The file holds probabilities; take their logarithms.")
@click.option("--conformal", "alphas", type=float, multiple=True, metavar="ALPHA", help="Also fit prediction sets.")
@click.option("--set", "kind", default="lac", show_default=True, help="Kind of prediction set: lac, aps or raps.")
@click.option("--class-conditional", is_flag=True, help="Prediction sets with the coverage for each class.")
@click.option("--abstain-risk", type=float, metavar="RATE", help="Also find where answers err at most this often.")
@click.option("--abstain-coverage", type=float, metavar="SHARE", help="Also find where this share is answered.")
@click.option("--bins", default=15, show_default=True, help="Bins of the metrics that are reported.")
@click.option("--json", "as_json", is_flag=True, help="Print the calibrator as JSON.")
def fit_command(
    predictions: Path,
    method: str,
    out: Path,
    options: tuple[str, ...],
    target_prior: str | None,
    adjust: float | None,
    rows_follow: Any,
    probabilities: bool,
    alphas: tuple[float, ...],
    kind: str,
    class_conditional: bool,
    abstain_risk: float | None,
    abstain_coverage: float | None,
    bins: int,
    as_json: bool,
) -> None:
    """Fit a calibrator on the labelled rows of PREDICTIONS and write it as JSON.

    \b
    Methods: temperature vector matrix dirichlet structured classwise-temperature
             isotonic histogram beta bbq enir ensemble-temperature auto
    Example: calibrant calibrate runs/first/predictions/val.parquet --method auto --conformal 0.1
    """
    from calibrant.calibration.decisions import Decisions
    from calibrant.calibration.fitting import fit_file

    if abstain_risk is not None and abstain_coverage is not None:
        raise ConfigError("--abstain-risk and --abstain-coverage were both given", fix="pass one of them")
    if (kind != "lac" or class_conditional) and not alphas:
        raise ConfigError("--set and --class-conditional need --conformal", fix="for example --conformal 0.1")
    decisions = None
    if alphas or abstain_risk is not None or abstain_coverage is not None:
        decisions = Decisions(alphas, kind, class_conditional, abstain_risk, abstain_coverage)
    calibrator = fit_file(
        predictions,
        method,
        bins=bins,
        target_prior=target_prior,
        adjust=adjust,
        rows_follow=rows_follow,
        decisions=decisions,
        options=_options(options),
        probabilities=probabilities,
    )
    calibrator.save(out)
    click.echo(calibrator.to_json() if as_json else f"{_account(calibrator)}\nWrote {out}", nl=not as_json)


@calibrate.command("cross-check")
@click.argument("predictions", type=_PATH)
@click.option("--bins", default=15, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cross_check_command(predictions: Path, bins: int, as_json: bool) -> None:
    """Recompute through netcal (and torchmetrics) and explain each difference; exit code 1 if one has no known reason.

    \b
    Example: calibrant calibrate cross-check runs/first/predictions/val.parquet
    """
    from calibrant.artifacts.predictions import read_predictions
    from calibrant.calibration.cross_check import cross_check
    from calibrant.errors import DataError
    from calibrant.progress import table

    data = read_predictions(predictions).labelled()
    if len(data) == 0:
        raise DataError("no row has a label", where=predictions)
    found = cross_check(data.logits, data.labels, bins=bins)
    if as_json:
        click.echo(json.dumps([c.to_dict() for c in found], indent=2))
    else:
        rows = [
            (
                c.what,
                c.library,
                "same" if c.agrees else c.reason,
                f"{c.ours:.7f}",
                "fails" if c.theirs is None else f"{c.theirs:.7f}",
                "" if c.difference is None else f"{c.difference:+.1e}",
            )
            for c in found
        ]
        click.echo(table(("what", "library", "why", "ours", "theirs", "difference"), rows, left=3))
    open_ones = [c.what for c in found if not c.agrees and not c.expected]
    if open_ones:
        raise CheckFailed(f"differs without a known reason: {', '.join(open_ones)}", where=predictions)


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
@click.option("--probabilities", is_flag=True, help="The files hold probabilities; take their logarithms.")
@click.option("--compare", is_flag=True, help="Also show differences from the first, with paired intervals.")
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
    probabilities: bool,
    compare: bool,
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
    """
    from calibrant.atomic import write_json, write_text
    from calibrant.calibration.evaluate_files import evaluate_files
    from calibrant.calibration.label_shift.files import resolved, served_file
    from calibrant.calibration.report.tables import text_table
    from calibrant.calibration.subjects import of_run

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
        probabilities=probabilities,
    )
    block: dict[str, Any] = {
        "models": [
            {"name": m.name, "in_sample": m.in_sample, "notes": list(m.notes), **m.evaluation.to_dict()} for m in models
        ]
    }
    differences: dict[str, dict[str, Difference]] = {}
    if compare:
        from calibrant.calibration.compare import compare_files

        if target_prior is not None and adjust is None:
            raise ConfigError("differences are of unweighted rows", where="--compare", fix="leave --target-prior out")
        if cross_fit is not None:
            raise ConfigError("differences are not cross-fitted", where="--compare", fix="leave --cross-fit out")
        differences = compare_files(
            predictions, calibrators, bins=bins, adjust=adjust, target_prior=target_prior, probabilities=probabilities
        )
    if compare:
        block["differences"] = {n: {k: d.to_dict() for k, d in ds.items()} for n, ds in differences.items()}
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
        return
    click.echo("".join(f"Note: {note}\n" for m in models for note in m.notes) + text_table(models))
    if compare:
        click.echo("\n" + _difference_table(models[0].name, differences))
    for kind, path in (("figure", figure), ("report", report), ("JSON", json_out)):
        if path is not None:
            click.echo(f"Wrote {kind} {path}")


def _difference_table(first: str, differences: dict[str, dict[str, Difference]]) -> str:
    from calibrant.calibration.metrics.table import metric
    from calibrant.calibration.report.tables import number
    from calibrant.progress import table

    rows = []
    for name, found in differences.items():
        for key, d in found.items():
            unit = metric(key).unit
            span = "" if d.low is None or d.high is None else f"[{number(d.low, unit)}, {number(d.high, unit)}]"
            rows.append((name, key, number(d.difference, unit), span, "yes" if d.clear else "no"))
    headers = (f"minus {first}", "metric", "difference", "95 % interval", "beyond noise")
    return table(headers, rows, left=2)


def _options(pairs: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE, the value read as JSON where it is JSON (numbers, lists), else as text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f'"{pair}" is not NAME=VALUE', where="--option")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        out[name.replace("-", "_")] = value
    return out


def _account(calibrator: Calibrator) -> str:
    """What was fitted and what it brought."""
    from calibrant.calibration.intervals.measured import Measured
    from calibrant.calibration.metrics.table import METRICS
    from calibrant.calibration.report.tables import by_chance, headline, interval
    from calibrant.progress import table

    lines = []
    for m in (m for m in METRICS if m.stored and m.part_of is None):
        before, after = (Measured(**calibrator.metrics[when][m.key]) for when in ("before", "after"))
        lines.append([
            m.name, headline(before, m), interval(before, m.unit), headline(after, m), interval(after, m.unit),
            by_chance(after, m),
        ])  # fmt: skip
    parts = [
        _describe(calibrator),
        table(("", "before", "95 % interval", "after", "95 % interval", "if calibrated"), lines),
        "After: cross-fitted, each row judged by a map fitted on other rows.",
    ]
    for alpha, block in (calibrator.conformal or {}).items():
        by_class, rows = block.get("class_thresholds"), block.get("effective_rows")
        spread = f", worth {rows:,.0f} rows of the target prior" if rows is not None else ""
        threshold = block["threshold"] if by_class is None else "one for each class"
        parts.append(
            f"Prediction sets ({block['kind']}) for {100 * (1 - float(alpha)):g} %: threshold {threshold}{spread}"
        )
    if calibrator.abstain:
        a = calibrator.abstain
        promise = f"true error rate at most {100 * a['risk_high']:.2f} % with 95 % certainty"
        if "wanted_risk" in a:
            promise = (
                f"at most {100 * a['risk_high']:g} % of the answers wrong, in 95 of 100 calibration sets; searched by "
                "a chain of tests"
            )
        parts.append(
            f"Answer from confidence {a['threshold']:.4f}: {100 * a['coverage']:.1f} % of rows, error rate "
            f"{100 * a['risk']:.2f} % here; {promise}."
        )
    return "\n".join(parts)


def _describe(calibrator: Calibrator) -> str:
    rows = calibrator.fitted_on["rows"]
    text = f"{calibrator.method} fitted on {rows:,} rows."
    if calibrator.method == "temperature":
        error = calibrator.fit.get("standard_error")
        spread = f" +- {1.96 * error:.3f}" if error is not None else ""
        text = f"T = {calibrator.parameters['temperature']:.4f}{spread} from {rows:,} rows."
    auto = calibrator.fit.get("auto")
    if auto:
        from calibrant.progress import table

        lines = [
            (
                name,
                f"{m['nll']:.4f}",
                f"{m['minus_best']:+.4f}",
                f"{m['minus_best_low']:+.4f} .. {m['minus_best_high']:+.4f}",
            )
            for name, m in auto["methods"].items()
        ]
        text = f"Chosen: {auto['chosen']}; {auto['why']}.\n" + table(
            ("method", "NLL (cross-validated)", "minus best", "95 % interval"), lines
        )
    note = calibrator.fit.get("note")
    return f"{text}\nNote: {note}" if note else text
