"""True labels by request id: the body of POST /v2/models/M/feedback, and what became of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calibrant.errors import did_you_mean
from calibrant.serve.protocol.body import json_object
from calibrant.serve.protocol.errors import BadInput, TooLarge

MAX_LABELS = 10_000


@dataclass(frozen=True)
class Labels:
    """`chosen`: of rows that were picked for what they are, such as errors, so that no figure may count them."""

    ids: Sequence[str]
    labels: Sequence[int]
    chosen: bool = False

    def only(self, ids: Collection[str]) -> Labels:
        kept = [(i, k) for i, k in zip(self.ids, self.labels, strict=True) if i in ids]
        return replace(self, ids=[i for i, _ in kept], labels=[k for _, k in kept])


def read_labels(body: memoryview, class_names: Sequence[str]) -> Labels:
    """`{"labels": [{"id": "...", "label": "crane" or 2, "row": 0}, ...]}`, or one such object alone; `"chosen": true`
    beside `labels` is said of all."""
    message = json_object(body)
    chosen = message.get("chosen", False)
    if not isinstance(chosen, bool):
        raise BadInput(f"`chosen` must be true or false, got {chosen!r}"[:200])
    entries = message.get("labels", [message] if "id" in message else None)
    if not isinstance(entries, list) or not entries:
        raise BadInput('send {"labels": [{"id": "...", "label": "..."}]}')
    if any(isinstance(entry, dict) and "chosen" in entry for entry in entries if entry is not message):
        raise BadInput("`chosen` is said of a whole message: send chosen labels and a random sample's apart")
    if len(entries) > MAX_LABELS:
        raise TooLarge(f"{len(entries)} labels in one request; at most {MAX_LABELS} are taken")
    ids: list[str] = []
    labels: list[int] = []
    for number, entry in enumerate(entries):
        id_ = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(id_, str) or not id_:
            raise BadInput(f"label {number} has no `id`, the id of the request that it belongs to")
        row = entry.get("row")
        if row is not None and (isinstance(row, bool) or not isinstance(row, int) or row < 0):
            raise BadInput(f"`row` of label {number} must be a whole number, got {row!r}")
        ids.append(id_ if row is None else f"{id_}/{row}")
        labels.append(_class(entry.get("label"), class_names, number))
    return Labels(ids, labels, chosen)


def _class(value: Any, names: Sequence[str], number: int) -> int:
    if isinstance(value, str):
        if value not in names:
            raise BadInput(f'label {number}: no class "{value[:60]}"; {did_you_mean(value, names)}')
        return list(names).index(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(names):
        raise BadInput(
            f"label {number} must be the name of a class or its number below {len(names)}, got {value!r}"[:200]
        )
    return value


_RANK = ("unknown", "repeated", "changed", "accepted")


@dataclass
class Reply:
    """What became of labels, by id: accepted, changed, repeated or unknown."""

    states: dict[str, str] = field(default_factory=dict)

    def note(self, id_: str, state: str) -> None:
        """The best of what was said about an id."""
        self.states[id_] = max(self.states.get(id_, "unknown"), state, key=_RANK.index)

    def add(self, other: Reply) -> None:
        for id_, state in other.states.items():
            self.note(id_, state)

    @property
    def unknown(self) -> list[str]:
        return [id_ for id_, state in self.states.items() if state == "unknown"]

    def count(self, state: str) -> int:
        return sum(s == state for s in self.states.values())
