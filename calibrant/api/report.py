"""What `evaluate` found, as a notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant import html
from calibrant.calibration.evaluation import Evaluation
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.figures import Model
from calibrant.calibration.report.tables import by_chance, headline, interval, number, withheld
from calibrant.calibration.verdict.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHORT = ("accuracy", "nll", "ece")  # in the line of `repr`


@dataclass(frozen=True, repr=False)
class Report:
    """Verdict, metrics (each also by its name: `report.ece`), classes, and what must be known before the numbers."""

    model: Model

    @property
    def verdict(self) -> Verdict | None:
        return self.model.verdict

    @property
    def evaluation(self) -> Evaluation:
        return self.model.evaluation

    @property
    def metrics(self) -> Mapping[str, Measured]:
        return self.model.evaluation.metrics

    @property
    def notes(self) -> tuple[str, ...]:
        return self.model.notes

    def __getattr__(self, name: str) -> Measured:
        if name.startswith("_") or name == "model":
            raise AttributeError(name)
        return getattr(self.model.evaluation, name)  # type: ignore[no-any-return]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.metrics})

    def to_dict(self) -> dict[str, Any]:
        verdict = None if self.verdict is None else self.verdict.to_dict()
        return {"name": self.model.name, "verdict": verdict, "notes": list(self.notes), **self.evaluation.to_dict()}

    def reliability_diagram(self, *, ax: Axes | None = None) -> Axes:
        """What it claims against how often it is right."""
        from calibrant.api.diagrams import reliability_diagram

        return reliability_diagram(self, ax=ax)

    def risk_coverage(self, *, ax: Axes | None = None) -> Axes:
        """The error rate among the surest rows, by their share."""
        from calibrant.api.diagrams import risk_coverage

        return risk_coverage(self, ax=ax)

    def _rows(self) -> list[tuple[str, ...]]:
        found = [(c, self.metrics[c.key]) for c in METRICS if c.key in self.metrics]
        return [(c.indented, headline(m, c), interval(m, c.unit), by_chance(m, c)) for c, m in found]

    def __repr__(self) -> str:
        short = ", ".join(f"{c.name} {number(self.metrics[c.key].value, c.unit)}" for c in METRICS if c.key in _SHORT)
        level = "" if self.verdict is None else f", {self.verdict.words.lower()}"
        return f"<Report of {self.model.name}: {self.evaluation.rows:,} rows, {short}{level}>"

    def _repr_html_(self) -> str:
        e = self.evaluation
        said = "" if self.verdict is None else f"{self.verdict.words}. {self.verdict.sentence}"
        return html.table(
            ("metric", "value", "95 % interval", "if calibrated"),
            self._rows(),
            title=f"{self.model.name}: {e.rows:,} rows, {e.classes} classes",
            below=" ".join([said, *withheld(self.metrics), *self.notes]).strip(),
        )
