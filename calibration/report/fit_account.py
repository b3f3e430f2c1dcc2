"""What `calibrant calibrate` says of the calibrator that it fitted."""

from __future__ import annotations

from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.tables import by_chance, headline, interval
from calibrant.progress import table


def fit_account(calibrator: Calibrator) -> str:
    """What was fitted and what it brought."""
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
        spread = f" +- {Z95 * error:.3f}" if error is not None else ""
        text = f"T = {calibrator.parameters['temperature']:.4f}{spread} from {rows:,} rows."
    auto = calibrator.fit.get("auto")
    if auto:
        lines = [
            (
                name,
                f"{m['nll']:.4f}",
                f"{100 * m['share']:.0f} %",
                f"{m['minus_chosen']:+.4f}",
                f"{m['minus_chosen_low']:+.4f} .. {m['minus_chosen_high']:+.4f}",
            )
            for name, m in auto["methods"].items()
        ]
        text = f"Chosen: {auto['chosen']}; {auto['why']}.\n" + table(
            ("method", "NLL (cross-validated)", "share", "minus chosen", "95 % interval"), lines
        )
        if auto["few_rows"]:
            text += f"\nNote: {auto['few_rows']}."
    notes = [n for n in (calibrator.fit.get("note"), calibrator.fitted_on.get("note")) if n]
    return "\n".join([text, *(f"Note: {note}" for note in notes)])
