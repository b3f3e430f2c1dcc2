"""Images that a study draws itself where --data does not name any: leaves, the same ones on every machine."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from calibrant.train.data.leaves import LeafSpec, write_leaves
from calibrant.train.jobs.claim import turn
from calibrant.train.study.file import Part

log = logging.getLogger(__name__)


def place_of(out: Path, spec: LeafSpec) -> Path:
    """Another spec lies elsewhere."""
    return out / "images" / f"leaves-{hashlib.sha256(json.dumps(asdict(spec)).encode()).hexdigest()[:12]}"


def drawn_places(out: Path, data: Sequence[Part]) -> dict[str, Path]:
    """Where the images of the data sets lie, or will, that are drawn."""
    return {part.name: place_of(out, part.leaves) for part in data if part.leaves is not None}


def draw_missing(out: Path, data: Sequence[Part], places: Mapping[str, Path]) -> None:
    """Draws what `places` has of those and is not there; a folder under its name is a whole one."""
    for part in data:
        if part.leaves is None or places.get(part.name) != place_of(out, part.leaves):
            continue
        place = places[part.name]
        with turn(out, f"draw-{place.name}", partial(log.warning, "another command draws %s", place)):
            if place.is_dir():
                continue
            begun = place.with_name(place.name + ".part")  # its writer was killed, or it is nobody's yet
            shutil.rmtree(begun, ignore_errors=True)
            os.replace(write_leaves(begun, part.leaves), place)
