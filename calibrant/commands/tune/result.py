"""What a search found: as text, as JSON, as the server's configuration, and as a picture."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant import atomic
from calibrant.commands.tune.candidates import Candidate
from calibrant.commands.tune.search import Trial
from calibrant.commands.tune.settings import Setting
from calibrant.progress import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG, RECORD, PICTURE = "serve.toml", "tune.json", "tune.png"


@dataclass(frozen=True)
class Result:
    machine: str
    model_name: str  # under which the file is served, whichever it is
    files: Sequence[Candidate]
    pictures: int  # that judged
    p99: float | None  # seconds, as wished
    trials: Sequence[Trial]
    chosen: Trial
    left_out: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine, "pictures": self.pictures, "p99_ms": None if self.p99 is None else 1e3 * self.p99,
            "files": [f.to_dict() for f in self.files], "trials": [t.to_dict() for t in self.trials],
            "chosen": self.chosen.to_dict(), "as_served_untuned": self.trials[0].to_dict(),
            "left_out": list(self.left_out),
        }  # fmt: skip

    def write(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        atomic.write_text(out / CONFIG, self.config(out))
        atomic.write_text(out / RECORD, json.dumps(self.to_dict(), indent=2) + "\n")
        from calibrant.calibration.report.figures import save

        save(self.figure(), out / PICTURE)

    # ---- text

    def text(self) -> str:
        first, chosen = self.trials[0], self.chosen
        gain = "" if not first.rate else f", {chosen.rate / first.rate:.2f} times what the server gives untuned"
        lines = [
            self.files_table(),
            "",
            self.trials_table(),
            "",
            f"{chosen.file.name}, {_in_words(chosen.setting)}{gain}",
        ]
        lines += [f"{f.name} is not served: {f.refused}" for f in self.files if f.refused]
        if self.left_out:
            lines.append(f"no time was left for: {', '.join(self.left_out)} (--time)")
        if any(t.figures is not None and t.figures.by_callers for t in self.trials):
            lines.append("* the callers had more than 0.9 of a core to do: the server can more than that")
        return "\n".join(lines)

    def files_table(self) -> str:
        rows = []
        for f in self.files:
            share, low, high = (100 * v for v in f.accuracy)
            rows.append((
                f"{'->' if f is self.chosen.file else '  '} {f.name}", f"{f.path.stat().st_size / 1e6:.1f}",
                f"{share:.2f} ({low:.1f} .. {high:.1f})", _difference(f, "accuracy"), f"{100 * f.ece:.2f}",
                _difference(f, "ece"), "refused" if f.refused else "may be served",
            ))  # fmt: skip
        return table((f"{self.pictures} pictures", "MB", "accuracy %", "change", "ECE %", "change", ""), rows)

    def trials_table(self) -> str:
        heads = ["file", "workers", "threads", "cap", "at most /s", "p50 ms", "p99 ms"]
        if self.p99 is not None:
            heads.insert(5, f"/s within {1e3 * self.p99:g} ms")
        rows = []
        for trial in self.trials:
            f, s = trial.figures, trial.setting
            shown = ["-"] * (len(heads) - 4)
            if f is not None:
                shown = [f"{f.capacity:,.0f}{'*' if f.by_callers else ''}", _ms(f.p50_ms), _ms(f.p99_ms)]
                if self.p99 is not None:
                    shown.insert(1, f"{f.rate:,.0f}")
            mark = "->" if trial is self.chosen else "  "
            name = f"{mark} {trial.file.name}{' (refused)' if trial.file.refused else ''}"
            rows.append((name, s.layout.workers, s.layout.threads, s.cap, *shown))
        return table(heads, rows)

    # ---- files

    def config(self, out: Path) -> str:
        """For `calibrant serve --config`, which reads paths relative to the file."""
        setting, path = self.chosen.setting, self.chosen.file.path
        wished = "" if self.p99 is None else f" within {1e3 * self.p99:g} ms in 99 of 100"
        said = "\n".join(f"# {line}".rstrip() for line in self.text().splitlines())
        model = f"{self.model_name}={os.path.relpath(path, out)}"
        return (
            f"# Made by calibrant tune on {self.machine}: {self.chosen.rate:,.0f} answers a second{wished}.\n"
            f"# Measured there, and true there only; calibrant serve --config {CONFIG} --check\n"
            f"models = [{json.dumps(model, ensure_ascii=False)}]\n"
            f"workers = {setting.layout.workers}\nthreads = {setting.layout.threads}\nbatch-cap = {setting.cap}\n\n"
            f"{said}\n"
        )

    def figure(self) -> Figure:
        """Accuracy against throughput: hollow marks are of files that may not be served."""
        from calibrant.calibration.report.figures import GREY, OVER, PALE, UNDER, new_figure, shortened, style

        colours = (UNDER, OVER, "#4D7C0F", "#7C3AED", "#B45309", GREY)
        with style():
            figure = new_figure(7.6, 4.4)
            axes = figure.add_axes((0.11, 0.14, 0.86, 0.74))
            for n, file in enumerate(self.files):
                share, low, high = (100 * v for v in file.accuracy)
                colour, rates = colours[n % len(colours)], [t.rate for t in self.trials if t.file is file and t.rate]
                if not rates:
                    continue
                axes.errorbar(
                    max(rates), share, yerr=[[share - low], [high - share]], color=colour, linewidth=1.2, capsize=3
                )
                name = f"{shortened(file.name)}{' (refused)' if file.refused else ''}"
                face = "white" if file.refused else colour
                axes.scatter(rates, [share] * len(rates), s=46, facecolor=face, edgecolor=colour, label=name, zorder=3)
            chosen, fastest = self.chosen, max(t.rate for t in self.trials)
            place = (chosen.rate, 100 * chosen.file.accuracy[0])
            axes.scatter(*place, s=190, facecolor="none", edgecolor="#1F2937", linewidth=1.4, zorder=4)
            axes.annotate(
                _in_words(chosen.setting),
                place,
                xytext=(0, 14),
                textcoords="offset points",
                ha="right" if 2 * chosen.rate > fastest else "left",
                fontsize=9,
            )
            wished = "" if self.p99 is None else f" with p99 within {1e3 * self.p99:g} ms"
            axes.set_xlim(0, 1.12 * fastest)
            axes.set_xlabel(f"answers a second{wished}")
            axes.set_ylabel("accuracy, %")
            axes.grid(color=PALE, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.set_title("What this machine gives", loc="left", fontsize=12, pad=10)
            axes.legend(frameon=False, loc="best", fontsize=9)
            return figure


def _difference(file: Candidate, key: str) -> str:
    d = file.differences.get(key)
    if d is None:
        return ""
    span = "" if d.low is None or d.high is None else f" ({100 * d.low:+.2f} .. {100 * d.high:+.2f})"
    return f"{100 * d.difference:+.2f}{span}"


def _in_words(setting: Setting) -> str:
    workers, threads = setting.layout.workers, setting.layout.threads
    each = f"{threads} thread{'s' if threads > 1 else ''}"
    return f"{workers} worker{'s' if workers > 1 else ''} of {each}, cap {setting.cap}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
