"""Whether a file may answer: it gives the answers stored in it, and what it replaces took the same questions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrant.artifacts import golden_rows
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import ModelError
from calibrant.serve.engine.session import Session
from calibrant.serve.models.folder import version_key
from calibrant.serve.protocol.tensors import TensorSpec

log = logging.getLogger(__name__)


class NotAccepted(ModelError):
    """A file that could be loaded and must not answer."""


def check_golden_rows(session: Session) -> None:
    """The file gives, here, the answers that it gave when it was written; one without such answers passes."""
    card = session.card
    if card is None or card.golden is None or golden_rows.OUTPUT not in session.outputs:
        return

    def run(rows: NDArray[Any]) -> NDArray[Any]:
        blank = session.blank(len(rows)) or {}
        return session.run_rows({**blank, card.input.name: rows}, [golden_rows.OUTPUT])[golden_rows.OUTPUT]

    found, most = golden_rows.difference(run, card), golden_rows.tolerance(card)
    if found is not None and not found <= most:
        raise NotAccepted(
            f"does not answer its own golden rows: probabilities are off by {found:.3g} (noise: {most:g})",
            where=session.path,
            fix="was it copied whole? does it answer with --provider cpu? else export it again",
        )
    log.info("%s: answers its golden rows (difference %.1g)", session.path.name, found)


def warn_of_changes(session: Session) -> None:
    """Golden rows are a few pictures: weights that were changed a little may answer them."""
    card = session.card
    if card is not None and (changed := OnnxFile.open(session.path).changed(card)):
        log.warning(
            "%s: its %s changed since the export, and it is served as it is; calibrant inspect --check says the same",
            session.path,
            " and ".join(changed),
        )


@dataclass(frozen=True)
class Contract:
    """What callers rely on: what they send, what they get, and what the classes are called."""

    path: Path
    inputs: dict[str, TensorSpec]
    required: tuple[str, ...]
    outputs: tuple[str, ...]
    classes: tuple[str, ...] | None

    @classmethod
    def of(cls, session: Session) -> Contract:
        classes = None if session.card is None else session.card.classes
        return cls(session.path, session.inputs, session.required, tuple(session.outputs), classes)


def check_successor(new: Contract, old: Contract) -> None:
    """What callers send to the old one means the same to the new one, and so do its answers."""
    for name, spec in old.inputs.items():
        other = new.inputs.get(name)
        if other != spec and not spec.optional:
            raise _other(new, old, f'input "{name}" was {_shown(spec)} and is {_shown(other)}')
    for name in new.required:
        if name not in old.inputs:
            raise _other(new, old, f'it needs an input "{name}" that callers do not send')
    gone = [name for name in old.outputs if name not in new.outputs]
    if gone:
        raise _other(new, old, f'it has no output "{gone[0]}"')
    if new.classes != old.classes:
        raise _other(new, old, _classes(old.classes, new.classes))


def misfits(contracts: Mapping[tuple[str, str], Contract]) -> Iterator[tuple[tuple[str, str], ModelError]]:
    """By name and version: those that cannot take the place of the first version of their name, and why."""
    first: dict[str, Contract] = {}
    for key in sorted(contracts, key=lambda key: (key[0], version_key(key[1]))):
        try:
            check_successor(contracts[key], first.setdefault(key[0], contracts[key]))
        except NotAccepted as error:
            yield key, error


def _other(new: Contract, old: Contract, what: str) -> NotAccepted:
    return NotAccepted(
        f"cannot take the place of {old.path.name}: {what}",
        where=new.path,
        fix="serve it under another name, or start the server with --accept-changes",
    )


def _shown(spec: TensorSpec | None) -> str:
    return "missing" if spec is None else f"{spec.datatype} {list(spec.shape)}"


def _classes(old: tuple[str, ...] | None, new: tuple[str, ...] | None) -> str:
    if old is None or new is None:
        return f"its classes are {'known' if new else 'unknown'}, those before were {'known' if old else 'unknown'}"
    if len(old) != len(new):
        return f"it has {len(new)} classes, not {len(old)}"
    at = next(n for n in range(len(old)) if old[n] != new[n])
    return f'class {at} was "{old[at]}" and is "{new[at]}"'
