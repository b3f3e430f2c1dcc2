"""A folder with predictions of independent labels, as another tool writes them, and a calibrator for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.calibration.independent.files import fit_labels_file

LABELS = ("cat", "dog", "elm", "rare")
SHARPNESS = (3.0, 3.0, 1.0, 1.0)  # "cat" and "dog" are claimed far too surely


def write_labels(folder: Path, *, rows: int = 600, calibrator: bool = True) -> Path:
    rng = np.random.default_rng(0)
    z = rng.normal((-0.5, 0.5, -0.5, -3.5), 1.5, (rows, len(LABELS)))
    there = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    folder.mkdir(parents=True)
    path = folder / "multi.npz"
    np.savez(path, logits=z * SHARPNESS, labels=there.astype(int), class_names=LABELS)
    if calibrator:
        fit_labels_file(path, "classwise-temperature").save(folder / "calibrator.json")
    return path
