"""From what an evaluation knows to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.causes.confidence import excess_cause, few_rows_cause, halves_cause
from calibrant.calibration.verdict.causes.excess import Excess
from calibrant.calibration.verdict.causes.harm import harm_cause
from calibrant.calibration.verdict.causes.parts import Part, parts_off
from calibrant.calibration.verdict.causes.ranking import ranking_cause
from calibrant.calibration.verdict.causes.row_groups import row_groups_off
from calibrant.calibration.verdict.causes.shift import one_class_cause, shift_cause
from calibrant.calibration.verdict.causes.where import worst_range
from calibrant.calibration.verdict.level import capped, level_of
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.remedies.more_labels import more_labels
from calibrant.calibration.verdict.remedies.order import order_trial
from calibrant.calibration.verdict.remedies.tried import Tried, tried
from calibrant.calibration.verdict.sentence import sentence
from calibrant.calibration.verdict.verdict import Cause, CauseKind, Level, Remedy, Verdict

_LEFT = 0.5  # share of the gap that the other rows keep, from which on a class is not the cause of it
_CAPPING = {"in-sample", "prior-shift", "ranking", "class", "group"}
_WHOLE = ("over-confident", "under-confident")
_SEEN = Cause("in-sample", "It is judged on the very rows that it was fitted on, so the figures flatter it.")


def judge(case: Case, *, margin: float = MARGIN) -> Verdict:
    """Level, sentence, causes by evidence and remedies that were tried.

    In-sample figures, a clear shift of the class shares, a lost ranking, and single classes or groups that are off
    leave it at best usable with care.
    """
    e = case.evaluation
    ece = e.metrics["ece"]
    raw = level_of(ece, margin)
    if (alone := one_class_cause(case)) is not None:
        return _of_one_class(case, alone, capped(raw))
    found = _first(case)
    lost = any(c.kind == "ranking" for c in found)
    parts = [] if lost else parts_off(case, margin=margin)
    apart = [] if lost else row_groups_off(case, margin=margin)
    found += _second(case, capped(raw) if parts or apart else raw)
    level = capped(raw) if parts or apart or any(c.kind in _CAPPING for c in found) else raw
    found += _with_row_groups(case, _off(case, level, parts, alone=raw == "trusted"), apart, alone=raw == "trusted")
    if level == "not-trusted" and not (parts or apart):
        found = _with_both_sides(case, found)
    helping = _in_other_order(case, found, margin) or tried(case, _to_mend(found), margin=margin, causes=found)
    causes = _by_evidence(found, helping, fitted=case.applied is not None)
    remedies = _by_cause(helping, causes)
    if not helping and causes and causes[0].kind in _WHOLE:
        remedies += _if_more(more_labels(case, margin=margin))
    few = few_rows_cause(level, ece, e.rows)
    if few is not None and (level == "unknown" or not causes):
        seen = [c for c in causes if c.kind == "in-sample"]
        causes = [*seen, few, *causes[len(seen) :]]
        remedies.insert(len(seen), more_labels(case, margin=margin))
    return Verdict(level, sentence(level, ece, causes, e.rows), tuple(causes), tuple(remedies))


def _of_one_class(case: Case, alone: Cause, level: Level) -> Verdict:
    """Nothing is tried: a map of these rows would learn to say one class."""
    general = excess_cause(Excess.of(case.statistics)) if level == "not-trusted" else None
    causes = [alone, *([] if general is None else [general])]
    more = Remedy("labels", None, "Label rows of the other classes too, in the shares in which they will occur.")
    said = sentence(level, case.evaluation.metrics["ece"], causes, case.evaluation.rows)
    return Verdict(level, said, tuple(causes), (more,))


def _first(case: Case) -> list[Cause]:
    """What leaves the other figures in doubt."""
    ranking = ranking_cause(case.evaluation)
    return [*([_SEEN] if case.in_sample else []), *([] if ranking is None else [ranking])]


def _second(case: Case, level: Level) -> list[Cause]:
    """What was done to the confidence, or is not meant for these rows."""
    found = []
    if case.applied is not None and not case.in_sample and case.rows is not None:
        found.append(harm_cause(case.rows(), case.applied))
    if case.meant is not None and case.found is not None and (case.applied is not None or level != "trusted"):
        found.append(shift_cause(case.meant, case.found, case.name, case.applied))
    return [cause for cause in found if cause is not None]


def _off(case: Case, level: Level, parts: Sequence[Part], *, alone: bool) -> list[Cause]:
    """All rows, or some classes: first what explains the other. `alone`: all rows together are within the margin."""
    whole = Excess.of(case.statistics)
    general = excess_cause(whole, worst_range(case)) if level != "trusted" else None
    named = [part.cause for part in parts]
    if general is None or not parts:
        return [*([] if general is None else [general]), *named]
    members = sorted(frozenset().union(*(part.members for part in parts)))
    theirs = Excess.of_cells(case.statistics.predicted_class_cells(members))
    others = whole.gap * whole.rows - theirs.gap * theirs.rows
    few = theirs.rows <= whole.rows / 2
    return [*named, general] if alone or few and others / (whole.gap * whole.rows) < _LEFT else [general, *named]


def _with_both_sides(case: Case, found: list[Cause]) -> list[Cause]:
    """Errors that cancel in the mean are said as such: also where the mean is clearly off, if by less than half."""
    e = case.evaluation
    mean, whole = [c for c in found if c.kind in _WHOLE], e.metrics["ece"].true_error or 0.0
    if found and not (mean and abs(mean[0].evidence["gap"]) < _LEFT * whole):
        return found
    both = halves_cause(e.metrics["over_ece"], e.metrics["under_ece"])
    return [both if c in mean else c for c in found] or [both]


def _if_more(labels: Remedy) -> list[Remedy]:
    """Where nothing that was tried helps and the rows are few, more of them."""
    return [labels] if (labels.gives or {}).get("more") else []


def _with_row_groups(case: Case, found: list[Cause], apart: Sequence[Cause], *, alone: bool) -> list[Cause]:
    """The clearest group of rows comes first where it makes up most of what the whole is off by, or more than it."""
    if not apart:
        return found
    whole, clearest = Excess.of(case.statistics).gap, apart[0].evidence
    most = (whole - clearest["gap"] * clearest["share"]) / whole < _LEFT if whole else True
    return [*apart, *found] if alone or most else [*found, *apart]


def _in_other_order(case: Case, found: Sequence[Cause], margin: float) -> list[Tried]:
    """Where classes stand for others, nothing else is tried: a map of such rows would learn the mistake."""
    signs = ("labelled" in c.evidence or (c.kind == "ranking" and "accuracy" in c.evidence) for c in found)
    trial = order_trial(case) if any(signs) and not case.in_sample else None
    return [] if trial is None else tried(replace(case, trials=[trial]), [c.kind for c in found], margin=margin)


def _to_mend(found: Sequence[Cause]) -> list[CauseKind]:
    """In-sample figures must be put right first, and a lost ranking has no remedy here."""
    kinds = [cause.kind for cause in found]
    if "in-sample" in kinds:
        return ["in-sample"]
    return [] if "ranking" in kinds else kinds


def _by_evidence(found: Sequence[Cause], helping: Sequence[Tried], *, fitted: bool) -> list[Cause]:
    """A harmful calibrator and a shift in order of what mending them gains. Last a shift whose remedy does not help, or
    leaves half of an error that another remedy mends.

    Without a calibrator (`fitted`) such a shift is no cause: who knows which class shares the network is right for?
    """
    doubt = [c for c in found if c.kind in ("in-sample", "ranking")]
    second = [c for c in found if c.kind in ("harmful-calibrator", "prior-shift")]
    rest = [c for c in found if c not in doubt and c not in second]
    gains = {c.kind: max((t.gain for t in helping if c.kind in t.against), default=0.0) for c in second}
    second.sort(key=lambda c: -gains[c.kind])
    shift = [c for c in second if c.kind == "prior-shift"]
    if not fitted:
        second = [c for c in second if c not in shift or gains[c.kind]]
    against = [t for t in helping if "prior-shift" in t.against]
    small = any(t.mends for t in helping) and not any(t.mends for t in against)
    last = shift if rest and helping and (not gains.get("prior-shift") or small) else []
    return [*doubt, *(c for c in second if c not in last), *rest, *(c for c in last if c in second)]


def _by_cause(helping: Sequence[Tried], causes: Sequence[Cause]) -> list[Remedy]:
    kinds = [c.kind for c in causes]

    def place(t: Tried) -> tuple[int, float]:
        return min((kinds.index(k) for k in t.against if k in kinds), default=len(kinds)), -t.gain

    return [t.remedy for t in sorted(helping, key=place)]
