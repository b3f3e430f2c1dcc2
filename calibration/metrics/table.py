"""Every metric that is shown, one record each: tables, reports, JSON, the dashboard and the docs are made from it.

The order is the order in which they are shown. To show a new metric: its function and its measurement in a file of its
own, and a line here that names both. Those without a `measured` of their own share their work with others, in
`calibrant.calibration.evaluation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from calibrant.calibration.metrics.binned_errors import (
    adaptive_ece,
    classwise_ece,
    debiased_ece,
    ece,
    mce,
    over_under_ece,
    rms_calibration_error,
)
from calibrant.calibration.metrics.correctness import accuracy, balanced_accuracy, macro_f1, top_k_accuracy
from calibrant.calibration.metrics.proper_scores import brier, nll
from calibrant.calibration.metrics.ranking import aurc, auroc
from calibrant.calibration.metrics.smooth import smooth_ece
from calibrant.errors import ConfigError, did_you_mean
from calibrant.plugins import Extended

if TYPE_CHECKING:
    from calibrant.calibration.intervals.measured import Measured
    from calibrant.calibration.statistics.statistics import Statistics

Unit = Literal["percent", "number"]
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """`function(probs, labels, weights=...)` gives its value.

    `ranked`: the best of several models may be marked by it. Not so for a half of the ECE, for what is mostly noise,
    and for a value around zero: lower is not better by itself there.
    `stored`: calibrators keep it, before and after.
    `freed`: shown is the value freed of noise, since the measured one is mostly that; see `Measured.true_error`.
    """

    key: str  # in JSON
    name: str  # in tables
    unit: Unit
    better: Better
    meaning: str  # in plain words
    function: Callable[..., float]
    ranked: bool = True
    stored: bool = False
    every_class: bool = False  # reads each class's probability, so its cost grows with the classes
    freed: bool = False
    part_of: str | None = None  # the key of the metric that it is a part of
    # What measures it from (statistics, bins): module:function in calibration/, or a plugin's own function.
    measured: str | Callable[[Statistics, int], Measured] = ""

    def title(self, when: str = "") -> str:
        """As a column is headed: ECE (%), or ECE after (%) with `when` "after"."""
        name = f"{self.name} {when}".rstrip()
        return name[0].upper() + name[1:] + (" (%)" if self.unit == "percent" else "")

    @property
    def indented(self) -> str:
        """As a line of a text table begins: a part stands to the right of the whole."""
        return self.name if self.part_of is None else f"  {self.name}"

    @property
    def scale(self) -> float:
        """What a value is multiplied by under `title`."""
        return 100.0 if self.unit == "percent" else 1.0

    @property
    def decimals(self) -> str:
        """How a value is written under `title`."""
        return "%.2f" if self.unit == "percent" else "%.4f"

    def measure(self, statistics: Statistics, bins: int) -> Measured:
        """With interval and null value."""
        if not isinstance(self.measured, str):
            return self.measured(statistics, bins)
        module, _, name = self.measured.partition(":")
        found: Measured = getattr(import_module(f"calibrant.calibration.{module}"), name)(statistics, bins)
        return found

    @property
    def help(self) -> str:
        return self.meaning[0].upper() + self.meaning[1:] + f"; {self.better} is better"


def _over(*args: object, **options: object) -> float:
    return over_under_ece(*args, **options).over  # type: ignore[arg-type]


def _under(*args: object, **options: object) -> float:
    return over_under_ece(*args, **options).under  # type: ignore[arg-type]


_OWN = (
    Metric("accuracy", "accuracy", "percent", "higher", "share of rows whose first guess is right", accuracy,
           stored=True),
    Metric("top5_accuracy", "top-5 accuracy", "percent", "higher", "the label is among the five most probable",
           top_k_accuracy),
    Metric("balanced_accuracy", "balanced accuracy", "percent", "higher", "mean over classes of the recall",
           balanced_accuracy, stored=True),
    Metric("macro_f1", "macro F1", "percent", "higher", "mean over classes of the F1 score", macro_f1,
           measured="intervals.macro_f1:measure_macro_f1"),
    Metric("nll", "NLL", "number", "lower", "negative log-likelihood, natural log", nll, stored=True),
    Metric("brier", "Brier score", "number", "lower", "squared error of the probabilities, 0 to 2", brier, stored=True),
    Metric("ece", "ECE", "percent", "lower",
           "expected calibration error: how far, on average, what it claims is from how often it is right", ece,
           stored=True),
    Metric("over_ece", "over-confident part", "percent", "lower", "the part from bins that claim too much", _over,
           ranked=False, stored=True, part_of="ece"),
    Metric("under_ece", "under-confident part", "percent", "lower", "the part from bins that claim too little", _under,
           ranked=False, stored=True, part_of="ece"),
    Metric("adaptive_ece", "adaptive ECE", "percent", "lower", "the same over bins of equally many rows", adaptive_ece,
           stored=True),
    Metric("classwise_ece", "class-wise ECE", "percent", "lower", "mean over classes of the error of each probability",
           classwise_ece, stored=True, every_class=True, freed=True, measured="intervals.classwise:measure_classwise"),
    Metric("smooth_ece", "smooth ECE", "percent", "lower", "calibration error without bins", smooth_ece),
    Metric("rms_calibration_error", "RMS calibration error", "percent", "lower", "large gaps weigh more",
           rms_calibration_error),
    Metric("debiased_ece", "debiased RMS error", "percent", "lower", "noise subtracted; below 0: nothing but noise",
           debiased_ece, ranked=False),
    Metric("mce", "MCE", "percent", "lower", "largest gap of any bin, often one of few rows", mce, ranked=False),
    Metric("aurc", "AURC", "percent", "lower", "mean error rate when answering the surest k rows, over all k", aurc),
    Metric("auroc", "failure AUROC", "percent", "higher", "a right row is surer than a wrong one this often", auroc),
)  # fmt: skip
_BY_KEY: Mapping[str, Metric] = Extended({m.key: m for m in _OWN}, "metrics")


class _Table(Sequence[Metric]):
    """Ours, and behind them those of plugins."""

    def __len__(self) -> int:
        return len(_BY_KEY)

    def __getitem__(self, index: Any) -> Any:
        return tuple(_BY_KEY.values())[index]


METRICS: Sequence[Metric] = _Table()


def metric(key: str) -> Metric:
    """The record of a key."""
    if key not in _BY_KEY:
        raise ConfigError(f'no metric "{key}"', fix=did_you_mean(key, _BY_KEY))
    return _BY_KEY[key]
