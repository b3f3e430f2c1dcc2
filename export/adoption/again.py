"""`calibrant verify` of an adopted file: compared with its foreign file again, whatever was edited since."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import DataError, FormatError
from calibrant.export.adoption.pictures import Pictures, given_rows
from calibrant.export.adoption.proof import Proof, prove
from calibrant.export.adoption.reading.foreign import sha256_of
from calibrant.export.adoption.reading.input_side import ForeignInput
from calibrant.export.adoption.reading.original import Original
from calibrant.export.checks.inspection import check_intact
from calibrant.export.checks.parity import Expected
from calibrant.export.edit import retail
from calibrant.images.declared.declaration import Declared

RANDOM = 16


def verify_adopted(path: Path, against: Path | None, images: Path | None) -> tuple[dict[str, Any], list[str]]:
    """The report as JSON and as lines. The calibrator is taken out for it: the network's own answers are compared."""
    file = OnnxFile.open(path)
    card = file.card()
    check_intact(file, card)
    block = card.adopted or {}
    original = original_of(card, block, _foreign(path, against, block), path)
    declared = Declared(card.preprocessing, block.get("colour") == "BGR")
    rows = not card.input.pictures
    pictures = None if images is None or rows else Pictures.of(images, card.classes, independent=card.independent)
    with tempfile.TemporaryDirectory(prefix="calibrant-verify-") as folder:
        bare = Path(folder) / path.name
        plain = replace(
            card, calibrator=None, prior=Prior(card.prior.train), class_temperatures=None, gauge="none", knobs="baked"
        )
        retail(file, plain, "for a comparison", bare)
        if card.precision.get("dtype") != block.get("precision"):
            return _statistics(bare, path, plain, original, declared, images)
        sets: dict[str, NDArray[Any]] = {"random": original.taken.random(RANDOM, card.preprocessing.size)}
        if pictures is not None:
            sets["given"] = pictures.pixels(card.preprocessing)
        elif images is not None:
            sets["given"] = given_rows(images, card.classes, original.taken.width).features
        expected = {n: (x, original.of_pixels(x, declared)) for n, x in sets.items()}
        batch = block.get("batch")
        fixed = batch if isinstance(batch, int) else None
        proof = prove(bare, expected, original.kind, str(block["precision"]), fixed, independent=card.independent)
    said = "agrees with" if proof.passed else "DOES NOT agree with"
    lines = [proof.line, f"{path}: {said} {block.get('file')}, the file that it was adopted from"]
    return {**proof.to_dict(), "failure": failure(proof)}, lines


def failure(proof: Proof) -> str | None:
    return None if proof.passed else proof.line


def _statistics(
    bare: Path, path: Path, card: ModelCard, original: Original, declared: Declared, images: Path | None
) -> tuple[dict[str, Any], list[str]]:
    """A file that was quantized here cannot say the same digits: its winners are compared."""
    from calibrant.export.checks.verify import by_statistics
    from calibrant.images.layouts import list_images

    def reference(rows: NDArray[Any]) -> Expected:
        p = original.of_pixels(rows, declared)
        return Expected(np.log(np.maximum(p, 1e-30)), np.ones(len(p), bool))

    found, lines = by_statistics(bare, card, reference, None if images is None else list_images(images))
    return found, [line.replace(str(bare), str(path)) for line in lines]


def original_of(card: ModelCard, block: Mapping[str, Any], foreign: Path, where: Path) -> Original:
    """The foreign file as the card describes it."""
    try:
        taken = block["input"]
        size = None if taken["size"] is None else (int(taken["size"][0]), int(taken["size"][1]))
        width = size[1] if taken["layout"] == "NF" and size is not None else 0
        found = ForeignInput(taken["name"], int(taken["elem"]), taken["layout"], size, taken["batch"], width)
        kind, output, precision = str(block["kind"]), str(block["output"]), str(block["precision"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"its card does not say what it was adopted from ({error})", where=where) from None
    return Original.open(
        foreign,
        found,
        output,
        kind,
        len(card.classes),
        precision=precision,
        independent=card.independent,
        floor=block.get("floor"),
    )


def _foreign(path: Path, against: Path | None, block: Mapping[str, Any]) -> Path:
    name = Path(str(block.get("file", ""))).name
    found = against or next((f for f in (path.parent / name, Path(name)) if name and f.is_file()), None)
    if found is None:
        raise DataError(
            f'"{name}", the file that it was adopted from, is not beside it', where=path, fix="give --against FILE"
        )
    if not found.is_file():
        raise DataError("no such file", where=found)
    if sha256_of(found) != block.get("sha256"):
        raise DataError("is not the file that it was adopted from (another sha256)", where=found)
    return found
