"""What a number is called, how it is written, and the text table of `calibrant evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.report.figures import Model
from calibrant.progress import table


@dataclass(frozen=True)
class Column:
    """`kind`: "percent", or "number" in its own unit. `better`: which way is good."""

    key: str
    name: str
    kind: str
    better: str
    meaning: str


COLUMNS = (
    Column("accuracy", "accuracy", "percent", "higher", "share of rows whose first guess is right"),
    Column("top5_accuracy", "top-5 accuracy", "percent", "higher", "the label is among the five most probable"),
    Column("balanced_accuracy", "balanced accuracy", "percent", "higher", "mean over classes of the recall"),
    Column("macro_f1", "macro F1", "percent", "higher", "mean over classes of the F1 score"),
    Column("nll", "NLL", "number", "lower", "negative log-likelihood, natural log"),
    Column("brier", "Brier score", "number", "lower", "squared error of the probabilities, 0 to 2"),
    Column("ece", "ECE", "percent", "lower",
           "average distance between what the model claims and how often it is right"),
    Column("over_ece", "  over-confident part", "percent", "lower", "the part from bins that claim too much"),
    Column("under_ece", "  under-confident part", "percent", "lower", "the part from bins that claim too little"),
    Column("adaptive_ece", "adaptive ECE", "percent", "lower", "the same over bins of equally many rows"),
    Column("classwise_ece", "class-wise ECE", "percent", "lower", "mean over classes of the error of each probability"),
    Column("smooth_ece", "smooth ECE", "percent", "lower", "calibration error without bins"),
    Column("rms_calibration_error", "RMS calibration error", "percent", "lower", "large gaps weigh more"),
    Column("debiased_ece", "debiased RMS error", "percent", "lower", "noise subtracted; below 0: nothing but noise"),
    Column("mce", "MCE", "percent", "lower", "largest gap of any bin, often one of few rows"),
    Column("aurc", "AURC", "percent", "lower", "mean error rate when answering the surest k rows, over all k"),
    Column("auroc", "failure AUROC", "percent", "higher", "a right row is surer than a wrong one this often"),
)  # fmt: skip


def number(value: float | None, kind: str) -> str:
    if value is None or value != value:
        return "-"
    if value in (float("inf"), float("-inf")):
        return "infinite"
    return f"{100 * value:.2f} %" if kind == "percent" else f"{value:.4f}"


def interval(m: Measured, kind: str) -> str:
    if m.low is None or m.high is None:
        return "-"
    if kind == "percent":
        return f"{100 * m.low:.2f} .. {100 * m.high:.2f} %"
    return f"{m.low:.4f} .. {m.high:.4f}"


def text_table(models: Sequence[Model]) -> str:
    """Each model's numbers: value, 95 % interval of the truth, and what a calibrated model would show."""
    blocks = []
    for model in models:
        e = model.evaluation
        weighting = "" if e.target_prior is None else f", weighted to the target prior (worth {e.effective_rows:,.0f})"
        rows = [
            (c.name, number(m.value, c.kind), interval(m, c.kind), number(m.null, c.kind))
            for c in COLUMNS
            if (m := e.metrics.get(c.key)) is not None
        ]
        head = f"{model.name}: {e.rows:,} rows{weighting}, {e.classes} classes, {e.bins} bins"
        blocks.append(head + "\n" + table(("metric", "value", "95 % interval", "if calibrated"), rows))
    return "\n\n".join(blocks)
