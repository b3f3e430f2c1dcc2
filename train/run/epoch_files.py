"""The model files of the best epochs, kept beside the one that the run ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from calibrant.calibration.metrics.table import metric

FOLDER = "epochs"

Kept = list[list[float]]  # [epoch, metric, NLL], the best one first


def file_of(run: Path, epoch: float) -> Path:
    return run / FOLDER / f"epoch-{int(epoch):04d}.safetensors"


def keep_top(
    run: Path, kept: Kept, entry: list[float], *, k: int, by: str, save: Callable[[Path], None] | None
) -> Kept:
    """The k best of `kept` and `entry`; `save` writes the file of the new one, those of all others are removed.

    Equal metrics are told apart by NLL, then the earlier epoch comes first. Without `save` no file is touched.
    """
    sign = -1.0 if metric(by).better == "higher" else 1.0
    best = sorted([*kept, entry], key=lambda e: (sign * e[1], e[2], e[0]))[:k]
    if save is None:
        return best
    if entry in best:
        (run / FOLDER).mkdir(parents=True, exist_ok=True)
        save(file_of(run, entry[0]))
    names = {file_of(run, e[0]).name for e in best}
    for file in (run / FOLDER).glob("epoch-*.safetensors"):
        if file.name not in names:
            file.unlink()
    return best
