"""What is said of independent labels: verdict first, then the means, then label by label; text and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from calibrant._version import __version__
from calibrant.calibration.independent.files import LabelsModel
from calibrant.calibration.independent.measure import NAMES, LabelFigures
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.report.html import page
from calibrant.progress import table

TITLES = {
    "base_rate": "there", "claimed": "claimed", "ece": "ECE", "nll": "NLL", "brier": "Brier", "auroc": "AUROC",
}  # fmt: skip
PERCENT = ("base_rate", "claimed", "ece")
HEADS = ("label", "rows", *TITLES.values(), "probabilities are")
_TEXT_HEADS = tuple(h if h != TITLES["ece"] else "ECE (true error; if calibrated)" for h in HEADS)
WORDS = {
    "trusted": "right enough", "care": "usable with care", "not-trusted": "not to be trusted", "unknown": "unknown",
}  # fmt: skip


def verdict_line(model: LabelsModel) -> str:
    """One sentence for all labels; those that are wrong come by name."""
    e = model.evaluation
    good, wrong, open_ = e.of_level("trusted"), e.of_level("not-trusted"), e.of_level("unknown")
    said = f"{model.name}: {len(good)} of {len(e.labels)} labels have probabilities that can be trusted to "
    said += f"{100 * e.margin:g} points ({e.rows:,} rows)"
    if wrong:
        said += f"; not to be trusted: {', '.join(wrong[:5])}" + (", ..." if len(wrong) > 5 else "")
    if open_:
        said += f"; too few rows to tell: {len(open_)}"
    if model.in_sample:
        said += ". Judged on the very rows that the calibrator was fitted on, so the numbers flatter it"
    return said + "."


def text_report(models: Sequence[LabelsModel], *, most: int = 40) -> str:
    """Labels with the largest error first."""
    blocks = []
    for model in models:
        worst = sorted(model.evaluation.labels, key=_error, reverse=True)
        rows = [("mean of labels", "", *_cells(model.evaluation.mean), "")]
        rows += [(x.name, f"{x.rows:,}", *_cells(x.metrics), WORDS[x.level]) for x in worst[:most]]
        more = "" if len(worst) <= most else f"\n... and {len(worst) - most} more labels: --json has all"
        blocks.append(verdict_line(model) + "\n\n" + table(_TEXT_HEADS, rows) + more)
    return "\n\n".join(blocks)


def html_report(models: Sequence[LabelsModel], *, title: str, made: str) -> str:
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="quiet">{escape(made)} · calibrant {escape(__version__)}</p>']
    for model in models:
        parts.append(f'<h2>{escape(model.name)}</h2><p class="verdict">{escape(verdict_line(model))}</p>')
        body = [_html_row("mean of labels", "", model.evaluation.mean, "")]
        for label in sorted(model.evaluation.labels, key=_error, reverse=True):
            body.append(_html_row(label.name, f"{label.rows:,}", label.metrics, WORDS[label.level], _diagram(label)))
        heads = "".join(f"<th>{escape(h)}</th>" for h in (*HEADS, "claimed against there"))
        parts.append(f'<div class="scroll"><table><tr>{heads}</tr>{"".join(body)}</table></div>')
    parts.append(
        '<p class="quiet">Labels do not exclude one another: each has a probability of its own. "there": share of rows '
        'that have the label; "claimed": the mean of its probabilities. ECE: how far the probability is from the share '
        "of rows that have the label, on average over bins of probability; in small type the 95 % interval of the true "
        "error, and what a perfectly calibrated model would show on as many rows.</p>"
    )
    return page(title, parts)


def _error(label: LabelFigures) -> float:
    return label.metrics["ece"].value if label.metrics else -1.0


def _number(key: str, value: float | None) -> str:
    if value is None or value != value:
        return "-"
    return f"{100 * value:.2f} %" if key in PERCENT else f"{value:.4f}"


def _span(key: str, m: Measured) -> str:
    if m.low is None or m.high is None:
        return ""
    if key in PERCENT:
        return f"{100 * m.low:.2f} .. {100 * m.high:.2f} %"
    return f"{m.low:.4f} .. {m.high:.4f}"


def _cells(metrics: dict[str, Measured]) -> tuple[str, ...]:
    out = []
    for key in NAMES:
        m = metrics.get(key)
        text = "-" if m is None else _number(key, m.value)
        span = "" if m is None or key != "ece" else _span(key, m)
        if span and m is not None and m.null is not None:
            span += f"; {_number(key, m.null)}"
        out.append(f"{text} ({span})" if span else text)
    return tuple(out)


def _html_row(name: str, rows: str, metrics: dict[str, Measured], level: str, picture: str = "") -> str:
    cells = []
    for key in NAMES:
        m = metrics.get(key)
        small = "" if m is None else _span(key, m)
        if m is not None and key == "ece" and m.null is not None:
            small += f"<br>if calibrated {100 * m.null:.2f} %"
        cells.append(f"<td>{'-' if m is None else _number(key, m.value)}<small>{small}</small></td>")
    return f"<tr><td>{escape(name)}</td><td>{rows}</td>{''.join(cells)}<td>{level}</td><td>{picture}</td></tr>"


def _diagram(label: LabelFigures) -> str:
    """A reliability diagram of 90 pixels: the area of a mark is its share of rows."""
    side, marks = 90, []
    for share, claim, seen in zip(label.bins.share, label.bins.confidence, label.bins.accuracy, strict=True):
        if share > 0:
            x, y = side * float(claim), side * (1 - float(seen))
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{max(1.2, 9 * float(share) ** 0.5):.1f}"/>')
    return (
        f'<svg width="{side}" height="{side}" viewBox="0 0 {side} {side}" role="img" '
        f'aria-label="claimed against there: {escape(label.name)}">'
        f'<rect width="{side}" height="{side}" fill="#F3F4F6"/>'
        f'<path d="M0 {side} L{side} 0" stroke="#9CA3AF" stroke-dasharray="3 3"/>'
        f'<g fill="#1A5C97" fill-opacity=".75">{"".join(marks)}</g></svg>'
    )
