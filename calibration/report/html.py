"""A report in one HTML file: no script, no font, no picture from elsewhere; opens without a network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from calibrant._version import __version__
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report import charts, figures
from calibrant.calibration.report.figures import Model
from calibrant.calibration.report.tables import (
    GROUP_HEADERS,
    by_chance,
    group_rows,
    headline,
    interval,
    number,
    shown,
    withheld,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #1F2937; margin: 0 auto; padding: 2.2rem
  1.4rem 4rem; max-width: 1120px; background: #fff; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
p { max-width: 46rem; margin: .4rem 0 .8rem; } .quiet { color: #555; }
img { max-width: 100%; height: auto; display: block; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .34rem .8rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #E5E7EB; }
th { font-weight: 600; color: #555; vertical-align: bottom; } tr > :first-child { text-align: left; padding-left: 0; }
td small { color: #6B7280; display: block; line-height: 1.2; } td.sub { padding-left: 1rem; }
.pair td { text-align: left; vertical-align: top; white-space: normal; overflow-wrap: anywhere; }
.over { color: #A3470A; } .under { color: #1A5C97; } .best { font-weight: 700; }
section { border-left: 5px solid #9CA3AF; padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0; }
section h2 { margin-top: .2rem; } section ul { margin: .3rem 0 .8rem; max-width: 60rem; } .verdict { font-weight: 600; }
section.trusted { border-color: #1A7F37; } section.care { border-color: #B7791F; }
section.not-trusted { border-color: #B42318; } code { overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: #555; font-size: 13px; }
"""

_CAUSES = 5  # that are shown


def html_report(models: Sequence[Model], *, title: str, bins: int, made: str, more: Sequence[str] = ()) -> str:
    """The page as text; `made` is its date line, `more` are sections of HTML that follow the verdict."""
    by_class = charts.class_figure(models)
    pictures = figures.reliability_figure(models, bins=bins)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(made)} · calibrant {escape(__version__)}</p>',
        *(f"<p>{escape(note)}</p>" for m in models for note in m.headline),
        *(verdict_block(m) for m in sorted(models, key=lambda m: m.reference)),  # what is used comes first
        *(f"<p>{escape(note)}</p>" for m in models for note in m.remarks),
        *more,
        "<h2>Reliability</h2>",
        _picture(pictures, "Reliability diagrams with histograms of confidence"),
        '<p class="quiet">Each mark is a bin of rows with similar confidence, its area their share. Below the dashed '
        "line the model claims more than it keeps, above it less. Hollow marks lie inside the grey band: a perfectly "
        "calibrated model with as few rows shows as much. Thin lines: 95 % interval of each bin's accuracy.</p>",
        "<h2>Numbers</h2>",
        _numbers(models),
        '<p class="quiet">In small type: 95 % interval of the true value. "If calibrated": what a perfectly calibrated '
        "model with these confidences and this many rows shows on average. The interval of a calibration error can lie "
        "below the measured value, because noise alone makes the measured value positive. Class-wise ECE is shown "
        "freed of noise.</p>",
        *(
            f'<p class="quiet">{escape(m.name)}: {escape(line)}</p>'
            for m in models
            for line in withheld(m.evaluation.metrics)
        ),
        "<h2>Answering only when sure</h2>",
        _picture(charts.risk_coverage_figure(models), "Error rate against the share of rows answered"),
        *([] if by_class is None else ["<h2>Classes</h2>", _picture(by_class, "Confidence minus accuracy by class")]),
        *_classes(models),
    ]
    return page(title, parts)


def page(title: str, parts: Sequence[str]) -> str:
    """The parts as one page that needs nothing from elsewhere."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_CSS}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def verdict_block(model: Model) -> str:
    """The verdict, its causes and what can be done, in the words of the command line; then the numbers in words."""
    v = model.verdict
    if v is None:
        return f"<p>{sentence(model)}</p>"
    if model.reference:  # what to do about it stands above: what is used in its place
        return (
            f'<section class="{v.level}"><p>{escape(model.name)}, as it was: {escape(v.sentence)}</p>'
            f'<p class="quiet">{sentence(model)}</p></section>'
        )
    more = len(v.causes) - _CAUSES
    causes = "".join(f"<li>{escape(c.text)}</li>" for c in v.causes[:_CAUSES])
    causes += f"<li>and {more} more, see the JSON of evaluate</li>" if more > 0 else ""
    remedies = "".join(
        f"<li>{escape(r.text)}{'' if r.command is None else f'<br><code>{escape(r.command)}</code>'}</li>"
        for r in v.remedies
    )
    parts = [
        f'<h2>{escape(model.name)}: <span class="{v.level}">{escape(v.words.lower())}</span></h2>',
        f'<p class="verdict">{escape(v.sentence)}</p>',
        f"<p>Why:</p><ul>{causes}</ul>" if causes else "",
        f"<p>What to do:</p><ul>{remedies or f'<li>{escape(v.without_remedy)}</li>'}</ul>",
        f'<p class="quiet">{sentence(model)}</p>',
    ]
    return f'<section class="{v.level}">{"".join(parts)}</section>'


def sentence(model: Model) -> str:
    """What the numbers say, in words, with noise called noise."""
    e = model.evaluation
    m, gap = e.metrics["ece"], e.metrics["mean_confidence"].value - e.metrics["accuracy"].value
    name = f"<b>{escape(model.name)}</b>"
    claim = (
        f"claims {100 * e.metrics['mean_confidence'].value:.1f} % on average and is right on "
        f"{100 * e.metrics['accuracy'].value:.1f} %"
    )
    if m.null_high is not None and m.value <= m.null_high:
        return (
            f"{name} {claim}. Its ECE of {100 * m.value:.2f} % is what a perfectly calibrated model shows with "
            f"{e.rows:,} rows (up to {100 * m.null_high:.2f} %): no miscalibration can be told from noise."
        )
    side = "over-confident" if gap > 0 else "under-confident"
    css = "over" if gap > 0 else "under"
    low, high = number(m.low, "percent"), number(m.high, "percent")
    return (
        f'{name} {claim}: it is <b class="{css}">{side}</b>. ECE {100 * m.value:.2f} %, true value between {low} and '
        f"{high}; a calibrated model would show {number(m.null, 'percent')}."
    )


def _picture(figure: Figure, words: str) -> str:
    data = base64.b64encode(figures.render(figure, "svg")).decode()
    return f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def _numbers(models: Sequence[Model]) -> str:
    head = "".join(f"<th>{escape(m.name)}</th><th>if calibrated</th>" for m in models)
    lines = []
    for column in METRICS:
        found = [m.evaluation.metrics.get(column.key) for m in models]
        if all(f is None for f in found):
            continue
        values = [shown(f, column) for f in found if f is not None]
        best = (max if column.better == "higher" else min)(values) if column.ranked and len(values) > 1 else None
        cells = ""
        for f in found:
            if f is None:
                cells += "<td>-</td><td>-</td>"
                continue
            mark = ' class="best"' if best is not None and shown(f, column) == best else ""
            cells += (
                f"<td><span{mark}>{headline(f, column)}</span><small>{interval(f, column.unit)}</small></td>"
                f"<td>{by_chance(f, column)}</td>"
            )
        css = ' class="sub"' if column.part_of is not None else ""
        lines.append(f"<tr><td{css}>{escape(column.name)}<small>{escape(column.meaning)}</small></td>{cells}</tr>")
    return f'<div class="scroll"><table><tr><th>metric</th>{head}</tr>{"".join(lines)}</table></div>'


def _classes(models: Sequence[Model], most: int = 200) -> list[str]:
    out = []
    for model in models:
        if model.evaluation.row_groups:
            head = "".join(f"<th>{h}</th>" for h in GROUP_HEADERS)
            lines = "".join(
                f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
                for row in group_rows(model.evaluation.row_groups)
            )
            out += [
                f"<h2>{escape(model.name)}: groups of rows</h2>",
                f'<div class="scroll"><table><tr>{head}</tr>{lines}</table></div>',
            ]
        for heading, entries in (("groups", model.evaluation.groups), ("classes", model.evaluation.per_class)):
            if not entries:
                continue
            shown = sorted(entries, key=lambda c: -abs(c.gap or 0.0))[:most] if heading == "classes" else list(entries)
            rows = ""
            for c in shown:
                side = "over" if (c.gap or 0) > 0 else "under"
                ece = "-" if c.ece is None else number(c.ece.value, "percent")
                null = "-" if c.ece is None else number(c.ece.null, "percent")
                gap = "-" if c.gap is None else f"{100 * c.gap:+.2f} %"
                rows += (
                    f"<tr><td>{escape(c.name)}</td><td>{c.rows:,}</td><td>{c.predicted:,}</td>"
                    f"<td>{number(c.recall, 'percent')}</td><td>{number(c.precision, 'percent')}</td>"
                    f'<td class="{side}">{gap}</td><td>{ece}</td><td>{null}</td></tr>'
                )
            note = f" (the {most} with the largest gap of {len(entries):,})" if len(shown) < len(entries) else ""
            out += [
                f"<h2>{escape(model.name)}: {heading}{note}</h2>",
                '<p class="quiet">Gap: mean confidence minus accuracy of the rows predicted as the class; largest '
                "first.</p>",
                '<div class="scroll"><table><tr><th>class</th><th>rows</th><th>predicted</th><th>recall</th>'
                "<th>precision</th><th>gap</th><th>ECE</th><th>if calibrated</th></tr>" + rows + "</table></div>",
            ]
    return out
