"""The table of every setting that quantization tried."""

from __future__ import annotations

from pathlib import Path

from calibrant.export.checks.measure import Quality
from calibrant.export.quantization.candidates import Result, row
from calibrant.progress import table


def lines(result: Result, out: Path) -> list[str]:
    """Before in the first row; the chosen setting has an arrow."""
    base = result.candidates[0]
    rows = []
    for one in result.candidates:
        found, q = row(one, base), one.quality
        rows.append((
            f"{'->' if one is result.chosen else '  '} {one.name}{'' if one.stable else ' (UNSTABLE)'}",
            "" if q is None else f"{100 * q.accuracy[0]:.2f}",
            "" if q is None else f"{100 * q.ece[0]:.2f}",
            "" if q is None else f"{100 * q.ece_freed:.2f} ({100 * q.ece[1]:.1f}..{100 * q.ece[2]:.1f})",
            "" if q is None else f"{q.nll[0]:.3f}",
            f"{100 * one.agreement:.1f}", f"{100 * one.clear_agreement:.1f}", f"{one.temperature:.3f}",
            f"{one.megabytes:.1f}", f"{found['speed_1']:.2f}x", f"{found['speed_8']:.2f}x",
            f"{100 * one.level_gap:.0f} %",
        ))  # fmt: skip
    headers = [
        "setting", "accuracy", "ECE", "freed (95 %)", "NLL", "same top-1", "clear ones", "T factor", "MB", "batch 1",
        "batch 8", "opt gap",
    ]  # fmt: skip
    text = [table(headers, rows, left=1)]
    if result.sensitivity:
        worst = sorted(result.sensitivity.items(), key=lambda item: -item[1])[:6]
        text.append(
            "share of the error that goes with one block in float: "
            + ", ".join(f"{name} {100 * share:.0f} %" for name, share in worst)
        )
    if base.quality is not None and result.chosen.quality is not None:
        text += ece_lines(base.quality, result.chosen.quality)
    text += [f"note: {warning}" for warning in result.warnings]
    text.append(
        "same top-1: winners equal to float32; clear ones: where its top two are 0.1 apart; opt gap: change of the "
        "error between optimisation off and on; freed: the ECE without what noise adds, in the interval of the true ECE"
    )
    return [*text, f"Wrote {out}: {result.chosen.name}"]


def ece_lines(before: Quality, after: Quality) -> list[str]:
    """Is the calibration of the chosen file the float file's? Three readings, the strict one too."""
    place = after.ece_place(before)
    low, high = (f"{100 * v:.2f}" for v in before.ece[1:])
    gap, least, most = (f"{100 * v:+.2f}" for v in after.ece_difference)
    paired = {"within": "no clear change", "above": "clearly larger", "below": "clearly smaller"}[place["paired"]]
    return [
        f"ECE before and after: measured {100 * before.ece[0]:.2f} and {100 * after.ece[0]:.2f}, freed of noise "
        f"{100 * before.ece_freed:.2f} and {100 * after.ece_freed:.2f}; float32's true ECE lies in {low} .. {high}",
        f"  like with like, the freed one lies {place['freed']} that interval; as measured, with its noise, it lies "
        f"{place['measured']}; on the same images {gap} ({least} .. {most}), {paired}",
    ]
