"""`calibrant calibrate` and `calibrant calibrate cross-check`; `by-group` has a file of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.calibration.cli.by_group import by_group_command
from calibrant.calibration.cli.scores import asked, score_options
from calibrant.calibration.cli.stakes import MARGIN, POLICY
from calibrant.command_group import DefaultCommandGroup
from calibrant.errors import CheckFailed, ConfigError
from calibrant.overwrite import OVERWRITE, refuse_to_replace
from calibrant.remote.storage import FileOrAddress
from calibrant.words import Words

_PATH = click.Path(path_type=Path)


def _methods() -> tuple[str, ...]:
    from calibrant.calibration.calibrators.table import FORMS

    return (*FORMS, "auto")


@click.group(cls=DefaultCommandGroup, default_command="fit")
def calibrate() -> None:
    """Fit a calibrator on a predictions file."""


@calibrate.command("fit")
@click.argument("predictions", type=FileOrAddress())
@click.option(
    "--method",
    type=Words(_methods),
    default="temperature",
    show_default=True,
    help="How to calibrate; `auto` compares and picks.",
)
@click.option(
    "--out", type=_PATH, help="Where to write it. Default: calibrator.json in the run, of a file in the working folder."
)
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
@score_options
@click.option("--conformal", "alphas", type=float, multiple=True, metavar="ALPHA", help="Also fit prediction sets.")
@click.option(
    "--set-kind",
    "kind",
    type=click.Choice(["lac", "aps", "raps"]),
    default="lac",
    show_default=True,
    help="Kind of prediction set.",
)
@click.option("--class-conditional", is_flag=True, help="Prediction sets with the coverage for each class.")
@click.option("--abstain-risk", type=float, metavar="RATE", help="Also find where answers err at most this often.")
@click.option("--abstain-coverage", type=float, metavar="SHARE", help="Also find where this share is answered.")
@click.option(
    "--also-on",
    "also_on",
    type=_PATH,
    multiple=True,
    metavar="SHIFTED",
    help="Show how each method carries over to these labelled predictions (blurred, another camera); repeatable.",
)
@click.option(
    "--robust", is_flag=True, help="With --method auto and --also-on: the method that loses least on its worst set."
)
@click.option("--bins", default=15, show_default=True, help="Bins of the metrics that are reported.")
@POLICY
@MARGIN
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Print the calibrator as JSON.")
def fit_command(
    predictions: Path,
    method: str,
    out: Path | None,
    options: tuple[str, ...],
    target_prior: str | None,
    adjust: float | None,
    rows_follow: Any,
    score_kind: Kind | None,
    outcome: Outcome | None,
    alphas: tuple[float, ...],
    kind: str,
    class_conditional: bool,
    abstain_risk: float | None,
    abstain_coverage: float | None,
    also_on: tuple[Path, ...],
    robust: bool,
    bins: int,
    policy: str | None,
    margin: float | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Fit a calibrator on the labelled rows of PREDICTIONS and write it as JSON.

    A run folder stands for its validation predictions.

    \b
    Methods: temperature adaptive-temperature ensemble-temperature classwise-temperature
             density-aware (with features) order-preserving vector structured-vector structured matrix dirichlet
             beta spline venn-abers isotonic histogram bbq enir
             auto, which chooses or makes a mixture of them
    Groups of rows: by-group is a command of its own.
    Example: calibrant calibrate runs/first/predictions/val.parquet --method auto --conformal 0.1
    """
    from calibrant.calibration.cli.carrying import carried_lines, most_robust
    from calibrant.calibration.cli.independent import calibrate_labels, refuse_options
    from calibrant.calibration.decisions import Decisions
    from calibrant.calibration.fitting import judged_fit
    from calibrant.calibration.independent.files import is_independent
    from calibrant.calibration.report.fit_account import fit_account
    from calibrant.calibration.subjects import calibrator_beside
    from calibrant.calibration.verdict.policy import margin_of
    from calibrant.calibration.verdict.text import verdict_lines

    out = out or calibrator_beside(predictions)
    refuse_to_replace(out, overwrite=overwrite)
    if is_independent(predictions, asked(score_kind, outcome)):
        others = {
            "--conformal": alphas or None, "--abstain-risk": abstain_risk, "--abstain-coverage": abstain_coverage,
            "--adjust": adjust, "--option": options or None, "--class-conditional": class_conditional or None,
            "--also-on": also_on or None,
        }  # fmt: skip
        refuse_options(others)
        said = asked(score_kind, outcome)
        calibrate_labels(
            predictions, method, out, target_prior, said, bins=bins, margin=margin_of(policy, margin), as_json=as_json
        )
        return
    if abstain_risk is not None and abstain_coverage is not None:
        raise ConfigError("--abstain-risk and --abstain-coverage were both given", fix="pass one of them")
    if (kind != "lac" or class_conditional) and not alphas:
        raise ConfigError("--set-kind and --class-conditional need --conformal", fix="for example --conformal 0.1")
    found = _carried(predictions, also_on, method, robust, asked(score_kind, outcome), (target_prior, adjust))
    if found is not None and robust:
        method = most_robust(found)
    decisions = None
    if alphas or abstain_risk is not None or abstain_coverage is not None:
        decisions = Decisions(alphas, kind, class_conditional, abstain_risk, abstain_coverage)
    fitted = judged_fit(
        predictions,
        method,
        bins=bins,
        target_prior=target_prior,
        adjust=adjust,
        rows_follow=rows_follow,
        decisions=decisions,
        options=_options(options),
        asked=asked(score_kind, outcome),
        margin=margin_of(policy, margin),
    )
    calibrator = fitted.calibrator
    if found is not None:
        calibrator = replace(calibrator, fit={**calibrator.fit, "carried": found})
    calibrator.save(out)
    if as_json:
        click.echo(calibrator.to_json(), nl=False)
    else:
        notes = "".join(f"\nNote: {note}" for note in fitted.notes)
        account = fit_account(calibrator)
        if found is not None:
            account += f"\n{carried_lines(found)}" + (f"\nRobust: {method}." if robust else "")
        click.echo(f"{verdict_lines(fitted.verdict)}{notes}\n\n{account}\nWrote {out}")


calibrate.add_command(by_group_command)


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


def _carried(
    predictions: Path, also_on: tuple[Path, ...], method: str, robust: bool, said: Any, corrected: tuple[Any, Any]
) -> dict[str, Any] | None:
    from calibrant.calibration.cli import carrying

    if robust and (method != "auto" or not also_on):
        raise ConfigError("needs --method auto and --also-on", where="--robust", fix="add --also-on SHIFTED.parquet")
    if not also_on:
        return None
    if any(value is not None for value in corrected):
        raise ConfigError("compares maps without a prior correction", where="--also-on", fix="leave --adjust out")
    own, others = carrying.read_sets(predictions, also_on, said)
    asked_for = () if method in carrying.METHODS or robust else (method,)
    return carrying.carried(own, others, (*carrying.METHODS, *asked_for))


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
