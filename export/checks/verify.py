"""Verification on demand: the whole comparison with the run that a deployed file came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.softmax import softmax
from calibrant.errors import DataError, FormatError
from calibrant.export.checks.failure import explain, failure
from calibrant.export.checks.measure import ASKED, ASKED_CLEAR
from calibrant.export.checks.parity import EVERY_LEVEL, LEVELS, Reference, answers, compare, session
from calibrant.export.checks.stored_predictions import check_predictions, find_predictions, line
from calibrant.export.graph.assemble import knob_defaults
from calibrant.export.graph.reference import lean, prepare
from calibrant.export.graph.wrapper import Body
from calibrant.export.run import head_of, own_images, own_rows, real_images, reference_of
from calibrant.images.layouts import list_images
from calibrant.images.listing import ImageListing
from calibrant.progress import table
from calibrant.train.run.folder import load_run

QUANTIZED_IMAGES = 256


def verify_file(
    path: Path, run: Path | None, images: Path | None, predictions: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The report as JSON and as lines of text. The file's own hashes are checked first."""
    file = OnnxFile.open(path)
    card = file.card()
    damaged = [k for k, v in file.hashes().items() if card.hashes.get(k) not in (None, v)]
    if damaged:
        raise FormatError(
            f"its {' and '.join(damaged)} do not match the hash recorded at export: the file was changed since",
            where=path,
            fix="export again",
        )
    folder = _find_run(path, run, str(card.source.get("run", "")))
    trained = load_run(folder) if card.input.pictures else head_of(folder)
    if card.source.get("checkpoint_sha256") not in (None, trained.sha256):
        raise DataError(
            "is not the checkpoint that the file was exported from (another sha256)",
            where=trained.run,
            fix="give the right one with --run, or export again",
        )
    reference = reference_of(trained, card)
    body = Body(torch.nn.Identity(), card.preprocessing, "uint8" if card.input.dtype == "uint8" else "float32")
    sets = {"random": body.example(card.preprocessing, 16, torch.Generator().manual_seed(1)).numpy()}
    here: ImageListing | None = None
    if not card.input.pictures:
        features = own_rows(trained)
        body.input = "rows"
        sets = {"random": body.example(card.preprocessing, 16, torch.Generator().manual_seed(1)).numpy()}
        sets |= {} if features is None else {"real": features}
    else:
        here = own_images(trained) if images is None else list_images(images)
    if card.precision.get("dtype", "float32") != "float32":
        return by_statistics(path, card, reference, here)
    if here is not None:
        sets["real"] = real_images(here, card.preprocessing, input=body.input)
    report = compare(path, reference, sets, levels=EVERY_LEVEL, knobs=knob_defaults(card))
    block = report.to_dict()
    block["failure"] = None
    if not report.passed:
        traced = Body(lean(prepare(trained.network)), card.preprocessing, body.input).eval()
        where = explain(report, path, traced, torch.from_numpy(sets["random"][:2]))
        block["failure"] = f"{failure(report)}; {where}"
    stored = predictions or find_predictions(trained.run)
    on_stored = None if stored is None or here is None else check_predictions(path, stored, here)
    if predictions is not None and on_stored is None:
        raise DataError("none of its images can be found", where=predictions, fix="give their folder with --images")
    if on_stored is not None:
        block["predictions"] = on_stored
        if not on_stored["passed"] and block["failure"] is None:
            block["failure"] = f"on {line(on_stored)}"
            block["passed"] = False
    rows = [
        (
            c.images,
            c.batch,
            c.level,
            c.threads,
            f"{c.probabilities:.1e}",
            f"{c.logits:.1e}",
            "equal" if c.top1_equal else "DIFFER",
            "ok" if c.passed else "FAILED",
        )
        for c in report.checks
    ]
    headers = ["images", "batch", "level", "threads", "probabilities", "logits/spread", "top-1", ""]
    lines = [table(headers, rows, left=1)]
    if report.blind:
        lines.append("The logits hardly depend on the image: this comparison shows little.")
    if on_stored is not None:
        lines.append(line(on_stored))
    lines.append(f"{path}: {'agrees with torch' if block['passed'] else 'DOES NOT agree with torch'}")
    return block, lines


def by_statistics(
    path: Path, card: ModelCard, reference: Reference, here: ImageListing | None
) -> tuple[dict[str, Any], list[str]]:
    """A quantized file cannot say the same digits: do its winners agree with torch's, with optimisation on and off?

    Asked are 96 % of all images and 99 % of those whose two largest probabilities are more than 0.1 apart, and one
    image may always differ.
    """
    if here is None:
        raise DataError(
            f"is {card.precision['dtype']}, which only real images can be compared on",
            where=path,
            fix="give a folder of them with --images",
        )
    images = real_images(here, card.preprocessing, input=card.input.dtype, limit=QUANTIZED_IMAGES)
    p = softmax(reference(images).logits)
    top = np.sort(p, axis=1)
    clear = top[:, -1] - top[:, -2] > 0.1
    block: dict[str, Any] = {"passed": True, "precision": card.precision["dtype"], "images": len(images), "levels": {}}
    lines = []
    for level in LEVELS:
        _, q = answers(session(path, level=level), images, 16, knob_defaults(card))
        same = q.argmax(1) == p.argmax(1)
        found = {"same_top1": float(same.mean()), "where_clear": float(same[clear].mean()) if clear.any() else 1.0}
        lost, lost_clear = int((~same).sum()), int((~same[clear]).sum())
        passed = lost <= max(1, (1 - ASKED) * len(same)) and lost_clear <= max(1, (1 - ASKED_CLEAR) * int(clear.sum()))
        passed = passed and bool(np.isfinite(q).all())
        block["levels"][level] = {**found, "passed": passed}
        block["passed"] = block["passed"] and passed
        lines.append(
            f"optimisation {level}: same winner as torch on {100 * found['same_top1']:.1f} % of {len(images)} images "
            f"({100 * ASKED:.0f} asked), {100 * found['where_clear']:.1f} % where clear ({100 * ASKED_CLEAR:.0f} asked)"
        )
    block["failure"] = None if block["passed"] else "; ".join(lines)
    lines.append(f"{path} ({card.precision['dtype']}): {'agrees with torch' if block['passed'] else 'DOES NOT agree'}")
    return block, lines


def _find_run(path: Path, given: Path | None, name: str) -> Path:
    """The run given, or a folder of the recorded name beside the file or in ./runs."""
    if given is not None:
        return given
    for folder in (path.parent / name, path.parent, Path("runs") / name, Path(name)):
        if name and any((folder / weights).is_file() for weights in ("model.safetensors", "head.safetensors")):
            return folder
    raise DataError(f'the run "{name}" that it came from is not beside it', where=path, fix="give --run FOLDER")
