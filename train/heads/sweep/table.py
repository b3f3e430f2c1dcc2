"""The table of a sweep: every variant against the baseline, paired by seed."""

from __future__ import annotations

import csv
import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import replacing, write_text
from calibrant.calibration.intervals.crossed import crossed_mean
from calibrant.progress import table as text_table
from calibrant.train.heads.scores import METRICS
from calibrant.train.heads.sweep.plan import ENCODER
from calibrant.train.jobs.rows import differences, row_values

SHOWN = ("macro_f1", "balanced_accuracy", "head_accuracy", "medium_accuracy", "tail_accuracy", "nll", "ece", "aece")


@dataclass(frozen=True)
class Difference:
    """Mean over seeds of a metric, and of its difference to the baseline with the same seed.

    low, high, p: of seeds and test images (calibration/intervals/crossed.py); None where nothing can be told.
    """

    value: float
    deviation: float  # standard deviation over seeds
    delta: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class SweepLine:
    variant: str
    seeds: int
    validation: float  # of the table's metric
    strength: float  # total correction of the prior, mean over seeds
    seconds: float
    p_holm: float | None  # of the table's metric, for all variants of the table together
    metrics: dict[str, Difference]
    changes: dict[str, Any]


@dataclass(frozen=True)
class SweepTable:
    metric: str
    on: str  # test, or val where the cache has no test split
    ranked_by: str  # val, or test where that was asked for
    images: int | None  # test images that the intervals stand on
    lines: tuple[SweepLine, ...]  # the baseline first, the others by the metric

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        headers, rows = self._cells()
        legend = textwrap.wrap(self._legend(), 110, break_on_hyphens=False)
        grid = self._grid()
        return "\n".join([*([text_table(*grid), ""] if grid else []), text_table(headers, rows), "", *legend])

    def markdown(self) -> str:
        tables = [*([grid] if (grid := self._grid()) else []), self._cells()]
        lines = []
        for headers, rows in tables:
            lines += ["| " + " | ".join(headers) + " |", "|---" + "|---:" * (len(headers) - 1) + "|"]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows] + [""]
        return "\n".join([*lines, self._legend(), ""])

    def html(self) -> str:
        tables = [*([grid] if (grid := self._grid()) else []), self._cells()]
        shown = "".join(_html(*cells) for cells in tables)
        style = (
            "body{font:14px system-ui;margin:2rem}table{border-collapse:collapse}th,td{padding:.25rem .6rem;"
            "border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child{text-align:left}"
        )
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>Sweep</title><style>{style}</style>"
            f"{shown}<p>{html.escape(self._legend())}</p></html>\n"
        )

    def _grid(self) -> tuple[list[str], list[list[str]]] | None:
        """Settings down, encoders across, the metric in the cells; None where there is one encoder."""
        found: dict[str, dict[str, float]] = {}
        for line in self.lines:
            encoder = str(line.changes.get(ENCODER, ""))
            value = line.metrics[self.metric].value
            found.setdefault(line.variant.removeprefix(f"{encoder}: "), {})[encoder] = value
        encoders = list(dict.fromkeys(e for row in found.values() for e in row))
        if len(encoders) < 2:
            return None
        cells = [[name, *(f"{row[e]:.4f}" if e in row else "" for e in encoders)] for name, row in found.items()]
        return [f"{self.on} {self.metric}", *encoders], cells

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        foreground = [
            m
            for m in ("macro_f1_fg", "weighted_f1_fg")
            if any(li.metrics[m].value != li.metrics[m.removesuffix("_fg")].value for li in self.lines)
        ]
        shown = [m for m in (self.metric, *foreground, *SHOWN) if m in self.lines[0].metrics]
        shown = list(dict.fromkeys(shown))
        headers = ["variant", f"val {self.metric}", f"{self.on} {self.metric}", "delta", "95 % interval", "p (Holm)",
                   *shown[1:], "strength"]  # fmt: skip
        rows = []
        for line in self.lines:
            d = line.metrics[self.metric]
            first = line is self.lines[0]
            interval = "none" if d.low is None or d.high is None else f"[{d.low:+.4f}, {d.high:+.4f}]"
            rows.append([
                line.variant, f"{line.validation:.4f}", f"{d.value:.4f}", "" if first else f"{d.delta:+.4f}",
                "" if first else interval, "" if first else _p(line.p_holm),
                *(f"{line.metrics[m].value:.4f}" for m in shown[1:]), f"{line.strength:.2f}",
            ])  # fmt: skip
        return headers, rows

    def _legend(self) -> str:
        n = self.lines[0].seeds
        chosen = "validation" if self.ranked_by == "val" else "test, which then is no test any more"
        head = (
            f"Sorted by {self.metric} on {chosen}; all other columns are means over {n} seed{'s' * (n > 1)} on "
            f"{self.on}. delta: mean difference to the baseline of the same seed. strength: total correction of the "
            "class prior, 1 is Bayes."
        )
        if self.images is None:
            why = (
                "the cache has no test split, and validation rows differ from seed to seed"
                if self.on == "val"
                else f"{self.metric} is no mean over rows, or runs of an older version kept no rows (delete runs/ to "
                "have them made again)"
            )
            return f"{head} No intervals: {why}."
        if n == 1:
            return (
                f"{head} Interval and p: over {self.images:,} test images, of these two trained heads, not of the "
                "methods; p adjusted for all variants (Holm)."
            )
        few = " Few seeds: where seeds differ much it covers less than 95 %." if n < 4 and self.images < 1000 else ""
        return (
            f"{head} Interval and p: two-way t over {n} seeds and {self.images:,} test images, paired; p adjusted for "
            f"all variants (Holm); none: no row differs.{few}"
        )


def make_table(
    rows: Sequence[Mapping[str, Any]],
    variants: Sequence[str],
    *,
    baseline: str,
    metric: str,
    overrides: Mapping[str, Mapping[str, Any]],
    rank_by: str = "val",
) -> SweepTable:
    """rows: one per run, with variant, seed, val, test, test_rows, total_strength and seconds."""
    on = "test" if all(row["test"] is not None for row in rows) else "val"
    by = {name: sorted((r for r in rows if r["variant"] == name), key=lambda r: r["seed"]) for name in variants}

    def values(name: str, m: str) -> NDArray[np.float64]:
        return np.asarray([row[on][m] for row in by[name]], np.float64)

    kept = {name: [row.get("test_rows") if on == "test" else None for row in by[name]] for name in variants}

    def difference(name: str, m: str) -> Difference:
        now, before = values(name, m), values(baseline, m)
        deviation = float(now.std(ddof=1)) if len(now) > 1 else 0.0
        plain = Difference(float(now.mean()), deviation, float((now - before).mean()))
        d = None if name == baseline else differences(m, kept[name], kept[baseline])
        if d is None:
            return plain
        found = crossed_mean(d)
        return replace(plain, low=found.low, high=found.high, p=found.p)

    deltas = {name: {m: difference(name, m) for m in METRICS} for name in variants}
    others = [name for name in variants if name != baseline]
    tested = [name for name in others if deltas[name][metric].p is not None]
    adjusted = dict(zip(tested, holm([deltas[name][metric].p or 0.0 for name in tested]), strict=True))
    lines = [
        SweepLine(
            name,
            len(by[name]),
            float(np.mean([r["val"][metric] for r in by[name]])),
            float(np.mean([r["total_strength"] for r in by[name]])),
            float(np.mean([r["seconds"] for r in by[name]])),
            adjusted.get(name),
            deltas[name],
            dict(overrides.get(name, {})),
        )
        for name in variants
    ]
    sign = -1 if METRICS[metric] else 1

    def place(line: SweepLine) -> float:
        return sign * (line.metrics[metric].value if rank_by == "test" and on == "test" else line.validation)

    rest = sorted((li for li in lines if li.variant != baseline), key=place)
    told = any(differences(metric, kept[name], kept[baseline]) is not None for name in others)
    images = len(row_values("accuracy", kept[baseline][0])) if told else None  # type: ignore[arg-type]
    first = next(li for li in lines if li.variant == baseline)
    return SweepTable(metric, on, rank_by if on == "test" else "val", images, (first, *rest))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: sorted p_(i) times (m - i), made monotone, at most 1."""
    order = np.argsort(p, kind="stable")
    result = [0.0] * len(p)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        result[int(i)] = running
    return result


def write_tables(out: Path, table: SweepTable, rows: Sequence[Mapping[str, Any]]) -> None:
    """results.csv and results.parquet, tidy: one row per run, split and metric; table.md and table.html."""
    tidy = [
        {"variant": r["variant"], "seed": r["seed"], "split": split, "metric": m, "value": v}
        for r in rows
        for split in ("val", "test")
        if r[split] is not None
        for m, v in r[split].items()
    ]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(tidy[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy)
    write_text(out / "results.csv", buffer.getvalue())
    import pyarrow as pa
    import pyarrow.parquet as pq

    with replacing(out / "results.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(tidy), temporary)
    write_text(out / "table.md", table.markdown())
    write_text(out / "table.html", table.html())


def _html(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(h)}</th>" for h in headers)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _p(value: float | None) -> str:
    if value is None:
        return "none"
    return "< .001" if value < 0.001 else f"{value:.3f}"
