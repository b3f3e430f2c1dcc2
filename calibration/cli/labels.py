"""`calibrant labels`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.calibration.cli.scores import asked, score_options
from calibrant.calibration.cli.stakes import MARGIN, POLICY

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("predictions", type=_PATH)
@click.option("--calibrator", type=_PATH, help="Count for the confidences that this calibrator gives.")
@click.option("--error", "errors", type=float, multiple=True, metavar="SHARE", help="An error to be seen; repeatable.")
@click.option("--width", "widths", type=float, multiple=True, metavar="SHARE", help="A width of its interval.")
@click.option("--bins", default=15, show_default=True, help="Equal-width bins.")
@score_options
@POLICY
@MARGIN
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def labels(
    predictions: Path,
    calibrator: Path | None,
    errors: tuple[float, ...],
    widths: tuple[float, ...],
    bins: int,
    score_kind: Kind | None,
    outcome: Outcome | None,
    policy: str | None,
    margin: float | None,
    as_json: bool,
) -> None:
    """How many labelled rows does it take to judge rows like PREDICTIONS? The rows need no labels yet.

    \b
    Examples:
      calibrant labels served.parquet
      calibrant labels test.parquet --calibrator calibrator.json --error 0.03 --width 0.02
    """
    from calibrant.calibration.subjects import of_run
    from calibrant.calibration.verdict.claims_of_file import claims_of_file
    from calibrant.calibration.verdict.labels_needed import COMMON, labels_table
    from calibrant.calibration.verdict.policy import margin_of

    let_pass = margin_of(policy, margin)
    path, own = of_run(predictions)
    found = claims_of_file(path, calibrator or own, bins=bins, asked=asked(score_kind, outcome))
    told = labels_table(found.claims, errors or COMMON, widths or COMMON, margin=let_pass)
    if as_json:
        click.echo(json.dumps({"rows": found.rows, "labelled": found.labelled, **told}, indent=2))
        return
    click.echo("\n".join(_lines(told, let_pass)))
    click.echo(f"{path.name} has {found.labelled:,} labelled rows of {found.rows:,}.")


def _lines(told: dict[str, list[dict[str, float]]], margin: float) -> list[str]:
    from calibrant.calibration.verdict.words import figure, points

    judge: dict[str, float] = told["to_judge"]  # type: ignore[assignment]
    return [
        f"{judge['rows']:>9,} labelled rows tell an error of {points(2 * margin)} from one of {figure(margin)}: a "
        "clear verdict",
        *(f"{line['rows']:>9,} show that there is an error of {points(line['error'])}" for line in told["to_see"]),
        *(f"{line['rows']:>9,} know a large error to within {points(line['width'])}" for line in told["to_know"]),
    ]
