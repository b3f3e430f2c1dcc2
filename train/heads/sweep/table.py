"""The table of a sweep: every variant against the baseline, paired by seed."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import replacing, write_text
from calibrant.progress import table as text_table
from calibrant.train.heads.scores import METRICS

SHOWN = ("macro_f1", "balanced_accuracy", "head_accuracy", "medium_accuracy", "tail_accuracy", "nll", "ece", "aece")


@dataclass(frozen=True)
class Difference:
    """Mean over seeds of a metric, and of its difference to the baseline with the same seed."""

    value: float
    deviation: float  # standard deviation over seeds
    delta: float
    low: float  # 95 % t interval of delta over seeds
    high: float
    p: float  # paired t test, two-sided


@dataclass(frozen=True)
class SweepLine:
    variant: str
    seeds: int
    validation: float  # of the sorting metric
    strength: float  # total correction of the prior, mean over seeds
    seconds: float
    p_holm: float  # of the sorting metric, for all variants of the table together
    metrics: dict[str, Difference]
    changes: dict[str, Any]


@dataclass(frozen=True)
class SweepTable:
    metric: str
    on: str  # test, or val where the cache has no test split
    lines: tuple[SweepLine, ...]  # the baseline first, the others by the metric

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        headers, rows = self._cells()
        return text_table(headers, rows)

    def markdown(self) -> str:
        headers, rows = self._cells()
        lines = ["| " + " | ".join(headers) + " |", "|---" + "|---:" * (len(headers) - 1) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join([*lines, "", self._legend(), ""])

    def html(self) -> str:
        headers, rows = self._cells()
        head = "".join(f"<th>{html.escape(h)}</th>" for h in headers)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        style = (
            "body{font:14px system-ui;margin:2rem}table{border-collapse:collapse}th,td{padding:.25rem .6rem;"
            "border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child{text-align:left}"
        )
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>Sweep</title><style>{style}</style>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(self._legend())}</p></html>\n"
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        shown = [m for m in (self.metric, *SHOWN) if m in self.lines[0].metrics]
        shown = list(dict.fromkeys(shown))
        headers = ["variant", self.metric, "delta", "95 % interval", "p (Holm)", *shown[1:], "strength"]
        rows = []
        for line in self.lines:
            d = line.metrics[self.metric]
            first = line is self.lines[0]
            rows.append([
                line.variant, f"{d.value:.4f}", "" if first else f"{d.delta:+.4f}",
                "" if first else f"[{d.low:+.4f}, {d.high:+.4f}]", "" if first else _p(line.p_holm),
                *(f"{line.metrics[m].value:.4f}" for m in shown[1:]), f"{line.strength:.2f}",
            ])  # fmt: skip
        return headers, rows

    def _legend(self) -> str:
        n = self.lines[0].seeds
        return (
            f"Means over {n} seeds on {self.on}. delta: mean difference in {self.metric} to the baseline of the "
            f"same seed; interval and p: paired t over seeds, p adjusted for all variants (Holm). strength: total "
            f"correction of the class prior, 1 is Bayes."
        )


def make_table(
    rows: Sequence[Mapping[str, Any]],
    variants: Sequence[str],
    *,
    baseline: str,
    metric: str,
    overrides: Mapping[str, Mapping[str, Any]],
) -> SweepTable:
    """rows: one per run, with variant, seed, val, test, total_strength and seconds."""
    on = "test" if all(row["test"] is not None for row in rows) else "val"
    by = {name: sorted((r for r in rows if r["variant"] == name), key=lambda r: r["seed"]) for name in variants}

    def values(name: str, m: str) -> NDArray[np.float64]:
        return np.asarray([row[on][m] for row in by[name]], np.float64)

    deltas = {
        name: {m: compare(values(name, m), values(baseline, m)) for m in METRICS} for name in variants
    }  # fmt: skip
    others = [name for name in variants if name != baseline]
    adjusted = dict(zip(others, holm([deltas[name][metric].p for name in others]), strict=True)) | {baseline: 1.0}
    lines = [
        SweepLine(
            name, len(by[name]), float(np.mean([r["val"][metric] for r in by[name]])),
            float(np.mean([r["total_strength"] for r in by[name]])), float(np.mean([r["seconds"] for r in by[name]])),
            adjusted[name], deltas[name], dict(overrides.get(name, {})),
        )
        for name in variants
    ]  # fmt: skip
    sign = -1 if METRICS[metric] else 1
    rest = sorted((li for li in lines if li.variant != baseline), key=lambda li: sign * li.metrics[metric].value)
    return SweepTable(metric, on, (next(li for li in lines if li.variant == baseline), *rest))


def compare(values: NDArray[np.float64], base: NDArray[np.float64]) -> Difference:
    """Paired by position. With one seed there is no interval: it is unbounded and p is 1."""
    from scipy.stats import t

    d = values - base
    n, mean = len(d), float(d.mean())
    deviation = float(values.std(ddof=1)) if n > 1 else 0.0
    if n < 2:
        return Difference(float(values.mean()), deviation, mean, -math.inf, math.inf, 1.0)
    error = float(d.std(ddof=1)) / math.sqrt(n)
    if error < 1e-12 * max(1.0, abs(mean)):  # the same difference for every seed
        return Difference(float(values.mean()), deviation, mean, mean, mean, 1.0 if abs(mean) < 1e-12 else 0.0)
    half = float(t.ppf(0.975, n - 1)) * error
    p = float(2 * t.sf(abs(mean) / error, n - 1))
    return Difference(float(values.mean()), deviation, mean, mean - half, mean + half, p)


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
        for r in rows for split in ("val", "test") if r[split] is not None for m, v in r[split].items()
    ]  # fmt: skip
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


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"{value:.3f}"
