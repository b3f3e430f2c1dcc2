"""What an adoption found, as lines and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibrant.export.adoption.adopt import Adoption
from calibrant.export.adoption.preprocess.diagnosis import ERRORS, Contender, Diagnosis


def lines(done: Adoption, out: Path) -> list[str]:
    found, p = done.found, done.declared.preprocessing
    taken = found.taken
    size = f"{p.size[0]} x {p.size[1]}"
    output = (
        f'"{found.output}": {found.kind}, {found.ending.said}'
        if found.floor is None
        else f'"{found.output}": {found.kind} for which the file has no logits; {found.stands_in} takes their place'
    )
    batch = (
        "any number of rows" if done.body.batch == "N" else f"{done.body.batch} rows at a time, as its graph is made"
    )
    shape = f"{taken.layout}, {size}, {'BGR' if done.declared.bgr else 'RGB'}"
    shape = f"rows of {taken.width} numbers" if taken.rows else shape
    rows = [
        ("from", f"{found.foreign.path.name} ({found.foreign.producer}, opset {found.foreign.opset}, "
                 f"{found.foreign.precision})"),
        ("input", f"{shape}; {batch}"),
        ("output", output),
        ("head", done.body.found),
        *([] if taken.rows else [("pictures", _pictures(done))]),
        ("proved", done.proof.line),
    ]  # fmt: skip
    if done.accuracy is not None:
        count = done.proof.rows.get("given", 0)
        rows.append(
            ("accuracy", f"{100 * done.accuracy:.1f} % of {count} labelled {'rows' if taken.rows else 'pictures'}")
        )
    width = max(len(k) for k, _ in rows)
    text = [str(out), *(f"  {k.ljust(width)}  {v}" for k, v in rows)]
    return [*text, *(f"  {note}" for note in warnings(done))]


def warnings(done: Adoption) -> list[str]:
    """What a person should look at."""
    declared, said = done.declared, []
    if declared.guessed:
        said.append(
            "GUESS: nobody said how pictures are prepared. Taken are " + ", ".join(declared.guesses) + ". If that is "
            "wrong, so are all answers: give --preprocess, or --data with labelled pictures to see"
        )
    else:
        said += [f"note: {guess}" for guess in declared.guesses]
    if done.diagnosis is not None:
        said += diagnosis_lines(done.diagnosis)
    return said + list(done.notes)


def diagnosis_lines(found: Diagnosis) -> list[str]:
    if found.blind:
        return [
            f"the network knows nothing of these pictures however they are prepared (best {_share(found.candidates[0])}"
            f" right of {found.rows}), or its classes are in another order"
        ]
    names = " or ".join(c.name for c in found.fitting)
    apart = ""
    if len(found.fitting) > 1:
        spread = max(c.worse for c in found.fitting)
        apart = f" (not told apart, at most {spread:.2f} nats)"
    given = found.declared
    if found.agrees:
        said = [f"preprocessing: {names} fits {found.rows} labelled pictures best{apart}; yours is among them"]
    else:
        said = [
            f"WRONG PREPROCESSING: {names} fits {found.rows} labelled pictures best{apart}; {found.given} is "
            f"{given.worse:.2f} +- {given.error:.2f} nats worse ({_share(given)} right, not "
            f"{_share(found.candidates[0])}). Nothing was changed: --fix-preprocess takes {found.candidates[0].name}"
        ]
    return said + _resizes(found)


def _resizes(found: Diagnosis) -> list[str]:
    """Never a finding: what fits best need not be what it was trained with."""
    given = next((c for c in found.resizes if c.name == "as given"), None)
    if given is None or given.worse <= ERRORS * given.error:
        return []
    best = found.resizes[0]
    return [
        f"resize and crop: as given is {given.worse:.2f} +- {given.error:.2f} nats worse than {best.name}, which does "
        "not show what the network was trained with: look at its documentation"
    ]


def to_dict(done: Adoption) -> dict[str, Any]:
    return {
        "card": done.card.to_dict(), "proof": done.proof.to_dict(), "accuracy": done.accuracy,
        "diagnosis": None if done.diagnosis is None else done.diagnosis.to_dict(), "notes": warnings(done),
    }  # fmt: skip


def _pictures(done: Adoption) -> str:
    declared, p = done.declared, done.declared.preprocessing
    if done.found.taken.scaled_inside:
        return f"{p.crop} {p.resize}, {p.interpolation}; the graph scales bytes itself; from {declared.source}"
    mean, std = (", ".join(f"{v:.4g}" for v in values) for values in (p.mean, p.std))
    return f"{p.crop} {p.resize}, {p.interpolation}, mean {mean}, std {std} (of 0..1); from {declared.source}"


def _share(c: Contender) -> str:
    return f"{100 * c.accuracy:.0f} %"
