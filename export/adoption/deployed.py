"""The file that an adoption leaves: its card, and how it appears once it is proved."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrant._version import __version__
from calibrant.artifacts.model_card import InputSpec, ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import DataError
from calibrant.export.adoption.body import ForeignBody
from calibrant.export.adoption.proof import Proof, prove, require
from calibrant.export.adoption.reading.found import Found
from calibrant.export.adoption.reading.original import Array
from calibrant.export.checks.golden import with_golden_rows
from calibrant.export.graph.assemble import build_tail, write_deployed
from calibrant.export.graph.saving import save
from calibrant.images.declared.declaration import Declared


def card_of(found: Found, body: ForeignBody, declared: Declared, names: tuple[str, ...], name: str) -> ModelCard:
    foreign = found.foreign
    stands_in = f"{found.stands_in}, p at least {found.floor:.1e}: the file has no logits" if found.floor else None
    behind = stands_in or found.ending.said
    return ModelCard(
        classes=names,
        preprocessing=declared.preprocessing,
        input=InputSpec("rows", "float32", "NF") if found.taken.rows else InputSpec(),
        outcome="independent" if found.independent else "exclusive",
        name=name,
        head=body.head,
        source={"model": name, "checkpoint_sha256": foreign.sha256},
        precision={"dtype": "float32"}
        if foreign.precision == "float32"
        else {"dtype": foreign.precision, "method": "as adopted"},
        versions={"calibrant": __version__},
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        adopted={
            "file": foreign.path.name,
            "sha256": foreign.sha256,
            "producer": foreign.producer,
            "opset": foreign.opset,
            "precision": foreign.precision,
            "input": {
                "name": found.taken.name,
                "layout": found.taken.layout,
                "elem": found.taken.elem,
                "size": None if found.taken.size is None else list(found.taken.size),
                "batch": found.taken.batch,
            },
            "output": found.output,
            "kind": found.kind,
            "behind": behind,
            "floor": found.floor,
            "head": body.found,
            "colour": "BGR" if declared.bgr else "RGB",
            "preprocessing": declared.source,
            "guesses": list(declared.guesses),
            "batch": body.batch,
        },
    )


def write(
    out: Path,
    card: ModelCard,
    body: ForeignBody,
    expected: Mapping[str, tuple[NDArray[Any], Array]],
    kind: str,
    precision: str,
) -> tuple[ModelCard, Proof]:
    """The file appears when it has been proved on the pictures, each set with the foreign file's answers."""
    if out.is_dir():
        raise DataError("is a folder", where=out)
    out.parent.mkdir(parents=True, exist_ok=True)
    tail = build_tail(card, body.weight, body.bias, body.width, body.batch)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".calibrant-adopt-") as folder:
        draft = Path(folder) / out.name
        save(body.model, draft)
        write_deployed(OnnxFile.open(draft), draft, card, tail)
        proof = prove(
            draft,
            expected,
            kind,
            precision,
            body.batch if isinstance(body.batch, int) else None,
            independent=card.independent,
        )
        require(proof, out)
        card = write_deployed(OnnxFile.open(draft), draft, replace(card, verify=proof.to_dict()), tail)
        card = with_golden_rows(draft, card)
        for data in OnnxFile.open(draft).external_files():
            data.replace(out.parent / data.name)
        draft.replace(out)
    return card, proof
