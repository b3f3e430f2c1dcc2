"""What a pipeline asks of an evaluation: "ece<0.05,accuracy.low>80%,verdict>=care".

A metric's key, one with an end of its interval (`ece.high`), or "verdict"; one of < <= > >= =; a number or a level.
Levels from worst to best: not-trusted, unknown, care, trusted. All must hold for every
model; where there are calibrators, for what goes through them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.verdict.verdict import LEVELS
from calibrant.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from calibrant.calibration.report.figures import Model

VERDICT = "verdict"
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip
_SHARES = (*(m.key for m in METRICS if m.unit == "percent"), "mean_confidence")
_NUMBERS = tuple(m.key for m in METRICS if m.unit == "number")
_ENDS = ("low", "high")
_RULE = re.compile(r"\s*([\w.-]+)\s*(<=|>=|==|<|>|=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Requirement:
    key: str
    sign: str
    wanted: float | str

    def holds(self, value: float | str | None) -> bool:
        """A value that is not known does not hold."""
        if value is None or value != value:
            return False
        compare = _SIGNS[self.sign]
        if isinstance(value, str):
            return compare(LEVELS.index(value), LEVELS.index(self.wanted))  # type: ignore[arg-type]
        return compare(value, self.wanted)

    def __str__(self) -> str:
        return f"{self.key}{self.sign}{self.wanted}"


def read_requirements(text: str) -> tuple[Requirement, ...]:
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise ConfigError("asks for nothing", where="--require", fix='for example "ece<0.05,verdict>=care"')
    return tuple(_read(part) for part in parts)


def _read(text: str) -> Requirement:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f'"{text.strip()}" is no rule', where="--require", fix='write a name, a sign and a value: "ece<0.05"'
        )
    key, sign, value = found[1], found[2].replace("==", "="), found[3]
    name, dot, part = key.partition(".")
    if name not in (*_SHARES, *_NUMBERS, VERDICT):
        raise ConfigError(
            f'no metric "{name}"', where="--require", fix=did_you_mean(name, (*_SHARES, *_NUMBERS, VERDICT))
        )
    if dot and (name == VERDICT or part not in _ENDS):
        known = "a verdict has none" if name == VERDICT else did_you_mean(part, _ENDS)
        raise ConfigError(f'no end "{part}" of the interval of {name}', where="--require", fix=known)
    if key == VERDICT:
        if value not in LEVELS:
            raise ConfigError(f'no level "{value}"', where="--require", fix=did_you_mean(value, LEVELS))
        return Requirement(key, sign, value)
    try:
        number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        number = float("nan")
    if number != number:
        raise ConfigError(f'"{value}" is no number', where="--require", fix=f'for example "{key}{sign}0.05"')
    if name in _SHARES and abs(number) > 1:
        raise ConfigError(
            f"{name} is a share, at most 1, so {key}{sign}{value} means nothing",
            where="--require",
            fix=f"for {value} points write {key}{sign}{value}%",
        )
    return Requirement(key, sign, number)


def broken(requirements: Iterable[Requirement], models: Sequence[Model]) -> list[str]:
    """What does not hold, and what was found instead."""
    out = []
    for model in models:
        for rule in () if model.reference else requirements:
            value = _value(rule.key, model)
            if not rule.holds(value):
                shown = value if isinstance(value, str) else "not known" if value is None else f"{value:.4g}"
                out.append(f"{model.name} breaks {rule}: it is {shown}")
    return out


def _value(key: str, model: Model) -> float | str | None:
    if key == VERDICT:
        return None if model.verdict is None else model.verdict.level
    name, _, part = key.partition(".")
    found = model.evaluation.metrics.get(name)
    value: float | None = None if found is None else getattr(found, part or "value")
    return value
