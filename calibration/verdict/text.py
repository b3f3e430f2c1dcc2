"""The verdict as the first lines of a command's answer."""

from __future__ import annotations

from calibrant.calibration.verdict.verdict import Verdict

_SHOWN = 3


def verdict_lines(verdict: Verdict, name: str = "") -> str:
    """Sentence, causes and remedies; the whole list of causes is in the JSON."""
    lines = [f"{name}: {verdict.sentence}" if name else verdict.sentence]
    lines += [f"  why  {cause.kind}: {cause.text}" for cause in verdict.causes[:_SHOWN]]
    if len(verdict.causes) > _SHOWN:
        lines.append(f"       and {len(verdict.causes) - _SHOWN} more, see --json")
    for remedy in verdict.remedies[:_SHOWN]:
        lines.append(f"  do   {remedy.text}")
        if remedy.command is not None:
            lines.append(f"       {remedy.command}")
    return "\n".join(lines)
