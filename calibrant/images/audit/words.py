"""A data check in sentences, the grave ones first."""

from __future__ import annotations

from calibrant.images.audit.check import FEW, LONG, SMALL_SIDE, DataCheck


def sentences(check: DataCheck) -> list[str]:
    """What was found and what is done about it; empty where there is nothing to say."""
    said = []
    if check.conflicts:
        said.append(
            f"{_n(len(check.conflicts), 'pair')} of near-identical pictures with two labels: they train, and are left "
            "out where confidence is measured; look at them"
        )
    if check.leaked:
        said.append(
            f"{_n(len(check.leaked), 'test image')} shown in training too: the verdict is given with and without"
        )
    if check.unreadable:
        said.append(f"{_n(len(check.unreadable), 'image')} cannot be read and left out: {_some(check, 'unreadable')}")
    if check.unread:
        said.append(f"{_n(len(check.unread), 'picture')} in formats that are not read: {', '.join(check.unread[:3])}")
    if check.doubled:
        said.append(f"{_n(len(check.doubled), 'byte-equal copy', 'byte-equal copies')} left out, one of each is kept")
    rest = len(check.pairs) - len(check.conflicts) - len(check.leaks) - len(check.doubled)
    if rest > 0:
        said.append(f"{_n(rest, 'pair')} of near-identical pictures: never divided between training and judgement")
    for name, what in (
        ("blank", "of one colour"),
        ("small", f"under {SMALL_SIDE} px a side"),
        ("strips", f"more than {LONG:g} times as long as wide"),
    ):
        if getattr(check, name):
            said.append(f"{_n(len(getattr(check, name)), 'image')} {what}: {_some(check, name)}")
    counts = check.counts()
    few = [n for n, count in zip(check.class_names, counts, strict=True) if count < FEW]
    if few:
        said.append(f"{_n(len(few), 'class', 'classes')} with fewer than {FEW} images: {', '.join(few[:3])}")
    if counts.min() and counts.max() >= 3 * counts.min():
        said.append(f"classes from {counts.min():,} to {counts.max():,} images: a long tail")
    return said


def _some(check: DataCheck, name: str) -> str:
    rows = getattr(check, name)
    return ", ".join(check.ids[i] for i in rows[:3]) + (" ..." if len(rows) > 3 else "")


def _n(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
