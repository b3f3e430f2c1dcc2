"""The files of a joined study: Markdown, LaTeX, CSV, Parquet, JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from calibrant.atomic import replacing, write_json, write_text
from calibrant.calibration.metrics.table import METRICS
from calibrant.train.study.joined import Block, Estimate, Joined, MethodLine

_NAMES = {m.key: m for m in METRICS}
_MEASURED = (
    "Means over the seeds; of a training's epochs too. cpu seconds: of a run, of its last start where it was stopped; "
    "of a head with the calibrators after it; peak mb: the most memory that its process held, all libraries included."
)
TABLE_FILES = ("study.json", "table.md", "table.tex", "measured.md", "results.csv", "results.parquet")


def write_joined(out: Path, joined: Joined, tidy: Sequence[dict[str, object]]) -> None:
    """tidy: one row per run, view and metric."""
    write_json(out / "study.json", joined.to_dict())
    write_text(out / "table.md", markdown(joined))
    write_text(out / "table.tex", latex(joined))
    write_text(out / "measured.md", measured(joined))
    if not tidy:
        return
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(tidy[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy)
    write_text(out / "results.csv", buffer.getvalue())
    import pyarrow as pa
    import pyarrow.parquet as pq

    with replacing(out / "results.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(list(tidy)), temporary)


def markdown(joined: Joined) -> str:
    """Two tables a block: values, and differences to the reference."""
    parts = [f"# {joined.title}", ""]
    if joined.finished < joined.total:
        parts += [f"**Not finished: {joined.finished} of {joined.total} runs.**", ""]
    for block in joined.blocks:
        parts += [f"## {heading(block)}", "", said(block), ""]
        parts += _pipe(["method", *(_title(m) for m in joined.metrics)], block, joined.metrics, _value)
        if any(e.difference is not None for line in block.lines for e in line.estimates.values()):
            titles = [f"minus {joined.reference}", *(_title(m) for m in joined.metrics)]
            parts += ["", *_pipe(titles, block, joined.metrics, _difference)]
        parts += ["", *_pipe(["mean rank", *(_title(m) for m in joined.metrics)], block, joined.metrics, _rank, True)]
        parts += [""]
    return "\n".join([*parts, *_notes(joined), ""])


def measured(joined: Joined) -> str:
    """What the runs cost, and what losses and networks told of themselves: not in table.md, as times differ."""
    parts = [f"# {joined.title}: what was measured", "", _MEASURED, ""]
    for block in joined.blocks:
        names = list(dict.fromkeys(name for line in block.lines for name in line.measured))
        if block.view or not names:
            continue
        parts += [f"## {heading(block)}", "", "| method | " + " | ".join(n.replace("_", " ") for n in names) + " |"]
        parts += ["|---" + "|---:" * len(names) + "|"]
        for line in block.lines:
            cells = [f"{line.measured[name]:.4g}" if name in line.measured else "" for name in names]
            parts += ["| " + " | ".join([_shown(line), *cells]) + " |"]
        parts += [""]
    return "\n".join(parts)


def text(joined: Joined) -> str:
    """The values, for a terminal."""
    from calibrant.progress import table

    parts = []
    for block in joined.blocks:
        rows = [[line.method, *(_value(m, line.estimates[m]) for m in joined.metrics)] for line in block.lines]
        parts += [heading(block), said(block), table(["method", *(_title(m) for m in joined.metrics)], rows), ""]
    return "\n".join(parts)


def latex(joined: Joined) -> str:
    lines = [f"% {joined.title}; scale {joined.scale}"]
    for block in joined.blocks:
        titles = " & ".join(_escaped(_title(m)) for m in joined.metrics)
        lines += [f"% {heading(block)}: {said(block)}", r"\begin{tabular}{l" + "r" * len(joined.metrics) + "}",
                  r"\hline", rf"method & {titles} \\", r"\hline"]  # fmt: skip
        for line in block.lines:
            cells = [_latex_cell(m, line.estimates[m]) for m in joined.metrics]
            lines.append(" & ".join([_escaped(line.method), *cells]) + r" \\")
        lines += [r"\hline", r"\end{tabular}", ""]
    return "\n".join(lines)


def heading(block: Block) -> str:
    view = "as trained" if not block.view else f"+ {block.view}"
    network = "" if block.network == "default" else f", {block.network}"
    return f"{block.data}{network}, {view}"


def said(block: Block) -> str:
    seeds = f"{len(block.seeds)} seed{'s' * (len(block.seeds) > 1)}"
    return f"Mean and standard deviation over {seeds}, {block.images:,} test images."


def _pipe(
    headers: Sequence[str],
    block: Block,
    metrics: Sequence[str],
    cell: Callable[[str, Estimate], str],
    compared_only: bool = False,
) -> list[str]:
    lines = ["| " + " | ".join(headers) + " |", "|---" + "|---:" * len(metrics) + "|"]
    for line in block.lines:
        if not compared_only or not line.control:
            cells = [cell(m, line.estimates[m]) for m in metrics]
            lines.append("| " + " | ".join([_shown(line), *cells]) + " |")
    return lines


def _shown(line: MethodLine) -> str:
    return line.method.replace("|", "\\|") + (" (control)" if line.control else "")


def _value(metric: str, e: Estimate) -> str:
    number = f"{_scaled(metric, e.mean)} ± {_scaled(metric, e.deviation)}"
    return {"best": f"**{number}**", "second": f"_{number}_"}.get(e.mark, number)


def _difference(metric: str, e: Estimate) -> str:
    if e.difference is None:
        return ""
    change = _scaled(metric, e.difference, sign=True)
    if e.low is None or e.high is None:
        return change
    return f"{change} [{_scaled(metric, e.low, sign=True)}, {_scaled(metric, e.high, sign=True)}]"


def _rank(metric: str, e: Estimate) -> str:
    if e.rank is None:
        return ""
    span = "" if e.rank_low is None or e.rank_high is None else f" [{e.rank_low:.1f}, {e.rank_high:.1f}]"
    return f"{e.rank:.1f}{span}"


def _notes(joined: Joined) -> list[str]:
    noises = {e.noise: m for b in joined.blocks for line in b.lines for m, e in line.estimates.items()}
    told = [
        "**Bold**: the best; _italic_: the second best; each only where the 95 % interval of its lead over the next "
        "one leaves 0 out. Controls are not ranked.",
    ]
    if "seeds and images" in noises:
        told.append(
            "Intervals of differences are paired, at 95 %, and know two kinds of noise, seeds and test images "
            "(two-way t; the ECE to first order)."
        )
    if "images" in noises:
        told.append("One seed: intervals are over test images, of these trained networks and not of the methods.")
    if "seeds" in noises:
        named = [
            m
            for m in joined.metrics
            if any(line.estimates[m].noise == "seeds" for b in joined.blocks for line in b.lines)
        ]
        told.append(f"Those of {', '.join(_title(m) for m in named)} know the seeds alone (paired t).")
    if "none" in noises:
        told.append("[0, 0]: no test row differs from the reference in any seed.")
    for line in {line.method: line for b in joined.blocks for line in b.lines if line.control}.values():
        told.append(f"{line.method}: control of {line.control}.")
    return ["\n\n".join([*told, *joined.notes])]


def _title(metric: str) -> str:
    return _NAMES[metric].title() if metric in _NAMES else f"{metric.replace('_', ' ')} (%)"


def _scaled(metric: str, value: float, *, sign: bool = False) -> str:
    record = _NAMES.get(metric)
    scale, decimals = (100.0, "%.2f") if record is None else (record.scale, record.decimals)
    shown = decimals % (scale * value)
    if float(shown) == 0:
        shown = shown.lstrip("-")
    return f"+{shown}" if sign and not shown.startswith("-") else shown


def _latex_cell(metric: str, e: Estimate) -> str:
    number = rf"{_scaled(metric, e.mean)} $\pm$ {_scaled(metric, e.deviation)}"
    return {"best": rf"\textbf{{{number}}}", "second": rf"\underline{{{number}}}"}.get(e.mark, number)


def _escaped(words: str) -> str:
    return words.replace("%", r"\%").replace("_", r"\_").replace("&", r"\&").replace("#", r"\#")
