"""What the page has to know of a deployed file: settings.json beside it, made from its card."""

from __future__ import annotations

from typing import Any

from calibrant.artifacts.golden_rows import tolerance
from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.conformal.holding import set_blocks
from calibrant.calibration.conformal.sets import ConformalSet
from calibrant.images.decode import MAX_PIXELS


def page_settings(file: OnnxFile, card: ModelCard, *, version: str, name: str) -> dict[str, Any]:
    limit = (card.ood or {}).get("threshold") if "ood_score" in card.outputs else None
    given = next(v for v in file.inputs if v.name == card.input.name)
    batch = given.dims[0]
    return {
        "version": version,
        "name": name,
        "author": card.author,
        "licence": card.licence,
        "created": card.created,
        "classes": list(card.classes),
        "independent": card.independent,
        "preprocessing": card.preprocessing.to_dict(),
        "ordered_passes": _pillow() >= 13,
        "max_pixels": MAX_PIXELS,
        # A file of a fixed batch takes that many rows and no fewer.
        "input": {
            "name": card.input.name,
            "dtype": card.input.dtype,
            "layout": card.input.layout,
            "rows": batch if isinstance(batch, int) and batch > 0 else 1,
        },
        "external": list(file.external_names()),
        "calibrator": None if card.calibrator is None else card.calibrator["method"],
        "abstain_below": card.abstain_below,
        "ood_threshold": None if limit is None else float(limit),
        "sets": prediction_sets(card),
        "golden": None if card.golden is None else {**card.golden, "tolerance": tolerance(card)},
    }


def _pillow() -> int:
    """The main version of the Pillow that a server beside this command resizes with: 13 orders its passes anew."""
    import PIL

    return int(PIL.__version__.partition(".")[0])


def prediction_sets(card: ModelCard) -> list[dict[str, Any]]:
    """The file's prediction sets, where they hold under its own prior; the largest coverage first."""
    if card.independent:
        return []
    blocks = {float(alpha): {"rows": 0, **block, "alpha": float(alpha)} for alpha, block in set_blocks(card).items()}
    return [
        {"coverage": round(1.0 - alpha, 10), **ConformalSet.from_dict(block).to_dict()}
        for alpha, block in sorted(blocks.items())
    ]
