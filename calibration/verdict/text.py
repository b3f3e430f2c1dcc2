"""The verdict as the first lines of a command's answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrant.calibration.verdict.verdict import Verdict

if TYPE_CHECKING:
    from calibrant.calibration.report.figures import Model

_SHOWN = 3


def verdicts(models: Sequence[Model]) -> str:
    """Of several: what is to be used first, then in one line each what stands beside it."""
    used = [verdict_lines(m.verdict, m.name) for m in models if m.verdict is not None and not m.reference]
    beside = [f"{m.name}: {m.verdict.sentence}" for m in models if m.verdict is not None and m.reference]
    return "\n".join([*used, *beside])


def verdict_lines(verdict: Verdict, name: str = "") -> str:
    """Sentence, causes and remedies; the whole list of causes is in the JSON."""
    lines = [f"{name}: {verdict.sentence}" if name else verdict.sentence]
    lines += [f"  why  {cause.kind}: {cause.text}" for cause in verdict.causes[:_SHOWN]]
    if len(verdict.causes) > _SHOWN:
        lines.append(f"       and {len(verdict.causes) - _SHOWN} more, see --json")
    if verdict.level != "trusted" and not verdict.remedies:
        lines.append(f"  do   {verdict.without_remedy}")
    for remedy in verdict.remedies[:_SHOWN]:
        lines.append(f"  do   {remedy.text}")
        if remedy.command is not None:
            lines.append(f"       {remedy.command}")
    return "\n".join(lines)
