"""What is said about a model's confidence: a level, one sentence, causes and remedies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Level = Literal["not-trusted", "unknown", "care", "trusted"]
CauseKind = Literal[
    "over-confident", "under-confident", "prior-shift", "harmful-calibrator", "in-sample", "too-few-rows", "class",
    "group", "ranking",
]  # fmt: skip
RemedyKind = Literal["recalibrate", "leave-out", "adjust", "cross-fit", "labels", "order"]

JUDGED_SHIFT = "judged_shift"  # beside a kept verdict: what the formula that was judged subtracts from the logits
LEVELS: tuple[Level, ...] = ("not-trusted", "unknown", "care", "trusted")  # from worst to best
WORDS: Mapping[str, str] = {
    "not-trusted": "Not to be trusted", "unknown": "Cannot be told", "care": "Usable with care", "trusted": "Trusted",
}  # fmt: skip

_INSTEAD: Mapping[CauseKind, str] = {  # where nothing can be tried
    "ranking": "Check the labels and the order of the classes; if they are right, another model is needed.",
    "prior-shift": "Judge it on rows that have the class shares of the place of use.",
    "in-sample": "Judge it on rows that its calibrator has not seen.",
}


@dataclass(frozen=True)
class Cause:
    """Why the level is what it is. `evidence`: the figures behind the text."""

    kind: CauseKind
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "evidence": _plain(self.evidence)}


@dataclass(frozen=True)
class Remedy:
    """What helps. `command` can be copied into a shell; `gives`: what it gave on the same rows, None if untried."""

    kind: RemedyKind
    command: str | None
    text: str
    gives: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        gives = None if self.gives is None else _plain(self.gives)
        return {"kind": self.kind, "command": self.command, "text": self.text, "gives": gives}


@dataclass(frozen=True)
class Verdict:
    level: Level
    sentence: str
    causes: tuple[Cause, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    @property
    def words(self) -> str:
        """The level as people say it."""
        return WORDS[self.level]

    @property
    def without_remedy(self) -> str:
        """What to do where nothing that can be tried helps."""
        if self.level == "trusted":
            return "Nothing: use it."
        first = self.causes[0] if self.causes else None
        if first is not None and first.kind in _INSTEAD:
            return _INSTEAD[first.kind]
        where = "its answers"
        name = None if first is None else first.evidence.get("name")
        if first is not None and name is not None and first.kind in ("class", "group"):
            column = first.evidence.get("column")
            where = f'its answers "{name}"' if first.kind == "class" else f'its answers of the group "{name}"'
            where = where if column is None else f'its answers for {column} "{name}"'
        return f"No calibrator is known to mend it on these rows: let a person check {where}."

    def at_least(self, level: Level) -> bool:
        return LEVELS.index(self.level) >= LEVELS.index(level)

    def without_commands(self) -> Verdict:
        """To be kept in a file that travels: commands name folders of the machine on which they were written."""
        return replace(self, remedies=tuple(replace(r, command=None) for r in self.remedies))

    def to_dict(self) -> dict[str, Any]:
        return {
            "level": self.level, "sentence": self.sentence, "causes": [c.to_dict() for c in self.causes],
            "remedies": [r.to_dict() for r in self.remedies],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Verdict:
        return cls(
            values["level"],
            values["sentence"],
            tuple(Cause(**c) for c in values["causes"]),
            tuple(Remedy(**r) for r in values["remedies"]),
        )


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON takes it: no NaN and no infinity."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return _plain(value)
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {key: plain(value) for key, value in values.items()}
