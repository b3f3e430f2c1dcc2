"""`calibrant evaluate`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from calibrant.artifacts.foreign.kinds import Kind
from calibrant.artifacts.foreign.outcome import Outcome
from calibrant.calibration.cli.scores import asked, score_options
from calibrant.calibration.cli.stakes import MARGIN, POLICY
from calibrant.errors import CheckFailed, ConfigError, did_you_mean
from calibrant.remote.ray_session import RAY_ADDRESS, joined
from calibrant.remote.storage import FileOrAddress

if TYPE_CHECKING:
    from calibrant.calibration.compare import Difference
    from calibrant.calibration.ood_files import OodRow
    from calibrant.calibration.report.figures import Model

_PATH = click.Path(path_type=Path)
_FIGURES = (".png", ".svg", ".pdf")


@click.command()
@click.argument("predictions", nargs=-1, required=True, type=FileOrAddress())
@click.option(
    "--calibrator",
    "calibrators",
    multiple=True,
    type=FileOrAddress(),
    help="Evaluate through it, or through a deployed .onnx file's formula, as well; may be given several times.",
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
    type=FileOrAddress(),
    help="Predictions of foreign images: how well is it told? Repeatable.",
)
@click.option(
    "--ood-fit", type=_PATH, help="With --ood: labelled rows with features, for Mahalanobis distance and kNN."
)
@click.option(
    "--engine",
    type=click.Choice(["calibrant", "ray"]),
    default="calibrant",
    show_default=True,
    help="Read the shards of a folder here, or by tasks of Ray on one machine or many: the same figures to the bit.",
)
@RAY_ADDRESS
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
    engine: Literal["calibrant", "ray"],
    ray_address: str | None,
    as_json: bool,
    json_out: Path | None,
    report: Path | None,
    figure: Path | None,
) -> None:
    """Measure accuracy and calibration of PREDICTIONS, with intervals and what noise alone would show.

    A run folder stands for its test predictions and brings its calibrator.json. Several files, and each file with and
    without its calibrators, stand side by side. What lies in object storage (s3://...) is copied here first.

    \b
    Examples:
      calibrant evaluate test.parquet --calibrator calibrator.json --report report.html
      calibrant evaluate runs/ce/predictions/test.parquet runs/vace/predictions/test.parquet --compare
      calibrant evaluate test.parquet --calibrator calibrator.json --require "ece<0.05,verdict>=care"
      calibrant evaluate test.parquet --ood svhn.parquet --ood-fit val.parquet
    """
    from calibrant.calibration.cli.independent import refuse_options, tell_labels
    from calibrant.calibration.evaluate_files import evaluate_files
    from calibrant.calibration.independent.files import evaluate_labels, is_independent
    from calibrant.calibration.verdict.policy import margin_of
    from calibrant.calibration.verdict.requirement import broken, read_requirements

    kind = asked(score_kind, outcome)
    if is_independent(predictions[0], kind):
        others = {
            "--target-prior": target_prior, "--adjust": adjust, "--cross-fit": cross_fit, "--require": required,
            "--ood": foreign or None, "--ood-fit": ood_fit, "--figure": figure,
            "--engine ray": True if engine == "ray" else None, "--ray-address": ray_address,
        }  # fmt: skip
        refuse_options(others)
        judged = evaluate_labels(predictions, calibrators, bins=bins, asked=kind, margin=margin_of(policy, margin))
        differences = None
        if compare:
            from calibrant.calibration.independent.compare import compare_label_files

            differences = compare_label_files(predictions, calibrators, bins=bins, asked=kind)
        tell_labels(judged, predictions, differences, as_json=as_json, json_out=json_out, report=report)
        return
    requirements = () if required is None else read_requirements(required)
    _refuse_before_work(figure, foreign, ood_fit)
    let_pass = margin_of(policy, margin)
    target_prior = _estimated(target_prior, predictions)
    formula: dict[str, Any] = {"bins": bins, "target_prior": target_prior, "adjust": adjust, "asked": kind}
    with joined(ray_address, engine=engine):
        models = evaluate_files(
            predictions, calibrators, cross_fit=cross_fit, margin=let_pass, engine=engine, **formula
        )
    found = _Found(models, bins, let_pass)
    if compare:
        found.compare(predictions, calibrators, cross_fit=cross_fit, **formula)
    if foreign:
        found.tell_foreign(predictions, foreign, calibrators, ood_fit)
    found.write(predictions, figure=figure, report=report, json_out=json_out)
    if as_json:
        click.echo(json.dumps(found.block(), indent=2))
    else:
        click.echo(found.text())
        for what, path in (("figure", figure), ("report", report), ("JSON", json_out)):
            if path is not None:
                click.echo(f"Wrote {what} {path}")
    failed = broken(requirements, found.models)
    if failed:
        raise CheckFailed("\n  ".join(failed), where="--require")
    if requirements and not as_json:
        click.echo("Holds: " + ", ".join(map(str, requirements)))


def _refuse_before_work(figure: Path | None, foreign: tuple[Path, ...], ood_fit: Path | None) -> None:
    if figure is not None and figure.suffix.lower() not in _FIGURES:
        raise ConfigError(
            f'cannot draw a "{figure.suffix}" figure', where="--figure", fix=did_you_mean(figure.suffix, _FIGURES)
        )
    if ood_fit is not None and not foreign:
        raise ConfigError("goes with --ood", where="--ood-fit", fix="give the predictions of foreign images too")


def _estimated(target_prior: str | None, predictions: tuple[Path, ...]) -> str | None:
    """The prior as shares where it is to be estimated from unlabelled predictions; otherwise as it was given."""
    from calibrant.calibration.label_shift.files import resolved, served_file
    from calibrant.calibration.subjects import of_run

    if target_prior is None or served_file(target_prior) is None:
        return target_prior
    if len(predictions) > 1:
        raise ConfigError("an estimate is of one model", where="--target-prior", fix="give one predictions file")
    return resolved(target_prior, of_run(predictions[0])[0])


@dataclass
class _Found:
    """What the command answers, as a block of JSON, as text and as files."""

    models: list[Model]
    bins: int
    margin: float
    differences: dict[str, dict[str, Difference]] | None = None
    ood: tuple[list[OodRow], list[str]] | None = None

    def compare(
        self, predictions: tuple[Path, ...], calibrators: tuple[Path, ...], *, cross_fit: int | None, **formula: Any
    ) -> None:
        from calibrant.calibration.compare import compare_files

        if formula["target_prior"] is not None and formula["adjust"] is None:
            raise ConfigError("differences are of unweighted rows", where="--compare", fix="leave --target-prior out")
        if cross_fit is not None:
            raise ConfigError("differences are not cross-fitted", where="--compare", fix="leave --cross-fit out")
        self.differences = compare_files(predictions, calibrators, **formula)

    def tell_foreign(
        self,
        predictions: tuple[Path, ...],
        foreign: tuple[Path, ...],
        calibrators: tuple[Path, ...],
        reference: Path | None,
    ) -> None:
        from calibrant.calibration.ood_files import evaluate_ood

        self.ood = evaluate_ood(predictions, foreign, calibrators, reference=reference)

    def block(self) -> dict[str, Any]:
        block: dict[str, Any] = {"margin": self.margin, "models": [self._model_block(m) for m in self.models]}
        if self.differences is not None:
            block["differences"] = {n: {k: d.to_dict() for k, d in ds.items()} for n, ds in self.differences.items()}
        if self.ood is not None:
            block["ood"] = [row.to_dict() for row in self.ood[0]]
        return block

    def _model_block(self, model: Model) -> dict[str, Any]:
        from calibrant.calibration.verdict.labels_needed import Claims, labels_table

        return {
            "name": model.name,
            "in_sample": model.in_sample,
            "notes": list(model.notes),
            "verdict": None if model.verdict is None else model.verdict.to_dict(),
            "labels_needed": labels_table(Claims.of_bins(model.statistics.bins(self.bins)), margin=self.margin),
            **model.evaluation.to_dict(),
        }

    def text(self) -> str:
        from calibrant.calibration.report.tables import difference_table, ood_table, text_table
        from calibrant.calibration.verdict.text import verdicts

        first = [f"Note: {note}" for m in self.models for note in m.headline]
        notes = [f"Note: {note}" for m in self.models for note in m.remarks]
        parts = ["\n".join([*first, verdicts(self.models), *notes]), text_table(self.models)]
        if self.differences is not None:
            parts.append(difference_table(self.models[0].name, self.differences))
        if self.ood is not None:
            rows, doubts = self.ood
            parts.append("".join(f"Note: {note}\n" for note in doubts) + ood_table(rows))
        return "\n\n".join(parts)

    def write(
        self, predictions: tuple[Path, ...], *, figure: Path | None, report: Path | None, json_out: Path | None
    ) -> None:
        from calibrant.atomic import write_json, write_text

        if figure is not None:
            from calibrant.calibration.report.figures import reliability_figure, save

            save(reliability_figure(self.models, bins=self.bins), figure)
        if report is not None:
            from datetime import datetime

            from calibrant.calibration.report.html import html_report
            from calibrant.calibration.subjects import file_names

            title = "Calibration of " + ", ".join(file_names(predictions))
            made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"
            write_text(report, html_report(self.models, title=title, bins=self.bins, made=made))
        if json_out is not None:
            write_json(json_out, self.block())
