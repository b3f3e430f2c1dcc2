"""Which settings are measured in the time there is, and which one is taken.

Every layout of each file that may be served comes first, with the cap that its runs ask for; then other caps in each
file's best layout; then the best three again, by turns, and what the server does untuned. A figure is the better one of
its measurements, since a machine that is not quiet only ever takes. Files that may not be served are measured once, for
the picture.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrant.commands.tune.candidates import Candidate
from calibrant.commands.tune.measure import Figures
from calibrant.commands.tune.settings import Setting, caps_beside
from calibrant.errors import CalibrantError, CheckFailed
from calibrant.serve.processes.layout import Layout

AGAIN = 3
NEAR = 0.95  # of the best rate: what carries so much is as good, and the simplest of them is taken


@dataclass(frozen=True)
class Trial:
    """`figures` is None where the server did not come up; `error` says why."""

    file: Candidate
    setting: Setting
    figures: Figures | None
    error: str | None = None

    @property
    def rate(self) -> float:
        return 0.0 if self.figures is None else self.figures.rate

    def to_dict(self) -> dict[str, Any]:
        layout = self.setting.layout
        said = {} if self.figures is None else self.figures.to_dict()
        settings = {"workers": layout.workers, "threads": layout.threads, "batch_cap": self.setting.cap}
        return {"file": self.file.name, **settings, **said, "error": self.error}


@dataclass
class Search:
    """`measure` and `cap_of` do the work; `clock` tells the time."""

    measure: Callable[[Candidate, Setting], Figures]
    cap_of: Callable[[Candidate, Layout], int]
    seconds: float
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda line: None
    trials: dict[tuple[str, Setting], Trial] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def over(self, files: Sequence[Candidate], layouts: Sequence[Layout]) -> list[Trial]:
        """The trials as they were made. `layouts`: the server's own choice first, which is always measured."""
        start = self.clock()
        good = [f for f in files if f.refused is None]
        for place, layout in enumerate(layouts):
            for file in files if place == 0 else good:
                if place == 0 or self._time_for(f"{file.name} {layout}", start):
                    self._try(file, Setting(layout, self.cap_of(file, layout)))
        for file in good:
            best = max(self._of(file), key=lambda t: t.rate)
            for cap in caps_beside(best.setting.cap):
                setting = Setting(best.setting.layout, cap)
                if best.figures is not None and self._time_for(f"{file.name} {setting}", start):
                    self._try(file, setting)
        found = [t for t in self.trials.values() if t.file.refused is None and t.rate > 0]
        top, untuned = sorted(found, key=lambda t: -t.rate)[:AGAIN], next(iter(self.trials.values()))
        for trial in top if untuned in top else [*top, untuned]:
            if self._time_for(None, start):
                self._try(trial.file, trial.setting)
        return list(self.trials.values())

    def _of(self, file: Candidate) -> list[Trial]:
        return [t for t in self.trials.values() if t.file is file]

    def _time_for(self, what: str | None, start: float) -> bool:
        there = self.clock() - start < self.seconds
        if not there and what is not None:
            self.left_out.append(what)
        return there

    def _try(self, file: Candidate, setting: Setting) -> None:
        key = (file.name, setting)
        known = self.trials.get(key)
        try:
            trial = Trial(file, setting, self.measure(file, setting))
        except CalibrantError as error:
            trial = Trial(file, setting, None, str(error))
        if known is None or trial.rate > known.rate:
            self.trials[key] = trial
        self.say(f"{file.name} {setting}: {_said(trial)}{'' if known is None else ' (again)'}")


def _said(trial: Trial) -> str:
    f = trial.figures
    if f is None:
        return f"not measured, {trial.error}"
    carried = "" if f.rate == f.capacity else f", {f.rate:,.0f}/s in time" if f.rate else ", not in time at any rate"
    p99 = "" if f.p99_ms is None else f", p99 {f.p99_ms:.1f} ms"
    return f"{f.capacity:,.0f}/s{carried}{p99}"


def choose(trials: Sequence[Trial]) -> Trial:
    """The highest rate of a file that may be served; among those within 5 % of it the one that changes least: the
    given file before others, fewer processes, fewer threads, a smaller cap."""
    order = {name: n for n, name in enumerate(dict.fromkeys(t.file.name for t in trials))}
    good = [t for t in trials if t.file.refused is None and t.rate > 0]
    if not good:
        errors = {t.error for t in trials if t.error}
        raise CheckFailed(
            f"no setting answers at all ({'; '.join(sorted(errors))})"
            if errors
            else "no setting answers in time, whatever the rate",
            where="calibrant tune",
            fix="look at the error" if errors else "allow more with --p99, or make the network smaller",
        )
    best = max(t.rate for t in good)
    near = [t for t in good if t.rate >= NEAR * best]
    return min(
        near,
        key=lambda t: (order[t.file.name], t.setting.layout.workers, t.setting.layout.threads, t.setting.cap),
    )
