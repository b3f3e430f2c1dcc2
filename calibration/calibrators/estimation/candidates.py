"""Which methods `auto` tries at a size, and how much each is believed before a row is seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from calibrant.calibration.calibrators.estimation import credence
from calibrant.calibration.calibrators.estimation.evidence import affordable

_ROWS_A_CLASS = 5  # from which many classes are pooled
_FEW_CLASSES = 100  # up to which Venn-Abers, which would double the time, is left out of the pool
_WORK = 5e6  # rows x numbers of the largest map: beyond, one fold


@dataclass(frozen=True)
class Member:
    """A candidate: a method with its options, and how much it is believed before any row is seen."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    prior: float = field(default=1.0, compare=False)

    @property
    def name(self) -> str:
        said = [f"{k} {v:g}" for k, v in self.options.items() if isinstance(v, float)]
        said += ["on logits"] if self.options.get("inputs") == "logits" else []
        return f"{self.method} ({', '.join(said)})" if said else self.method

    @property
    def path(self) -> tuple[str, Any]:
        """Members that differ by their penalty alone."""
        return self.method, self.options.get("inputs")

    @property
    def full(self) -> bool:
        return self.method in ("structured", "matrix", "dirichlet")

    def numbers(self, classes: int) -> int:
        return classes * classes if self.full else 2 * classes


def _near_temperature(part: float, **options: str) -> tuple[Member, ...]:
    return tuple(Member("structured", {"penalty": s, **options}, part * p) for s, p in credence.PRIOR.items())


# From simple to complex. Strengths of the penalty are members of their own: a mixture is steadier than a choice.
_USUAL = (
    Member("temperature", {"steady": True}, credence.OF_TEMPERATURE),
    *_near_temperature(0.5),
    *_near_temperature(0.5, inputs="logits"),
    Member("structured-vector", {"penalty": 0.3}, 0.02),
    Member("vector", {"penalty": 0.3}, 0.03),
)
# Of many classes where a fit takes long.
_FEWER = (
    Member("temperature", {"steady": True}, credence.OF_TEMPERATURE),
    Member("structured-vector", {"penalty": 3.0}, 0.2),
    Member("structured-vector", {"penalty": 0.1}, 0.1),
    Member("vector", {"penalty": 0.3}, 0.1),
    Member("structured", {"penalty": 10.0}, 0.2),
    Member("structured", {"penalty": 1.0}, 0.2),
)
# Of many classes with rows enough to pool them by the likelihood of held-out rows.
POOLED = (
    Member("temperature", {"steady": True}),
    Member("structured-vector", {"penalty": 0.03}),
    Member("spline", {"mixture": False}),
    Member("structured", {"penalty": 0.03}),
    Member("structured", {"penalty": 0.03, "inputs": "logits"}),
)
# Beside the mixture of few classes, and of many with few rows each, whatever evidence says of it.
_WEAK, _OF_WEAK = Member("structured", {"penalty": 0.1}), 0.1
OF_RARE_CLASSES = Member("venn-abers", {}, 0.2)


@dataclass(frozen=True)
class Candidates:
    """The members of a choice, and, with its share, the one that stands beside the mixture of the others."""

    members: tuple[Member, ...]
    pooled: bool = False
    heavy: bool = False
    beside: Member | None = None
    part: float = 0.0


def candidates_for(rows: int, classes: int, *, single: bool = False) -> Candidates:
    """`single`: one of them will be taken, so that nothing stands beside a mixture."""
    heavy = rows * classes * classes > _WORK
    if affordable(classes, full=True):
        members = _FEWER if heavy else _USUAL
        return Candidates(members, heavy=heavy) if single else Candidates(members, False, heavy, _WEAK, _OF_WEAK)
    if rows >= _ROWS_A_CLASS * classes:
        return Candidates((*POOLED, OF_RARE_CLASSES) if classes > _FEW_CLASSES else POOLED, True, heavy)
    members = _FEWER if heavy else tuple(m for m in _USUAL if "inputs" not in m.options)
    if single:
        return Candidates((*members, OF_RARE_CLASSES), heavy=heavy)
    return Candidates(members, False, heavy, OF_RARE_CLASSES, OF_RARE_CLASSES.prior)
