"""The features of served rows, where a file puts them out and they shall be watched: `--feature-drift`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration.monitoring.feature_alarm import FEWEST_ROWS, FeatureWatch
from calibrant.calibration.monitoring.watched_features import WatchedFeatures
from calibrant.errors import DataError
from calibrant.serve.engine.session import Session

log = logging.getLogger(__name__)

OUTPUT = "features"
_FIX = "make it with the deployed file: calibrant predict MODEL.onnx --features ..."
MOST_BYTES = 64 << 20  # of features that wait for the monitor's thread

Rows = NDArray[np.float32]


class ServedFeatures:
    """Takes features from the event loop and makes scores of them in the monitor's thread."""

    def __init__(self, found: WatchedFeatures | None, said: str) -> None:
        """`found`: None where the file has none; `said`: what is watched, or why nothing is."""
        self._found, self.said = found, said
        self.rows_without = 0  # for which there was no room

    @classmethod
    def of(cls, session: Session, sha256: str, baseline: Path | None) -> ServedFeatures:
        spec = session.outputs.get(OUTPUT)
        if spec is None:
            return cls(None, f"the file has no output `{OUTPUT}`, so its features are not watched: export --features")
        if len(spec.shape) != 2 or spec.shape[1] < 1 or spec.datatype not in ("FP32", "FP16"):
            kind = f"{spec.datatype} {list(spec.shape)}"
            return cls(None, f"its output `{OUTPUT}` is {kind}, not a row of numbers of a fixed length: not watched")
        width = int(spec.shape[1])
        normal = None if baseline is None else _features_of(baseline, width, sha256)
        found = WatchedFeatures.of(normal, width, seed=int(sha256[:12] or "0", 16))
        if found.watch.normal is not None:
            return cls(found, f"compared with {len(normal):,} rows of the baseline" if normal is not None else "")
        why = ""
        if baseline is not None:
            had = "no" if normal is None else f"{len(normal):,}"
            why = f" (the baseline has {had} rows with features, and {2 * FEWEST_ROWS:,} are needed)"
        return cls(found, f"compared with the first served rows{why}")

    @property
    def watch(self) -> FeatureWatch | None:
        return None if self._found is None else self._found.watch

    @property
    def watched(self) -> bool:
        return self._found is not None

    def taken(self, features: NDArray[Any] | None, rows: int, pending: int) -> Rows | None:
        """A copy for later, of a request behind so many; None where there is no room, or no features."""
        if features is None or self._found is None:
            return None
        if (pending + 1) * features.nbytes > MOST_BYTES:
            self.rows_without += rows
            return None
        return np.array(features, np.float32)

    def scores(self, blocks: Sequence[tuple[int, Rows | None]]) -> Rows | None:
        """(rows, S) of blocks of so many rows each, NaN for those without; None where nothing is watched."""
        if self._found is None or not blocks:
            return None
        directions = self._found.directions
        scores = np.full((sum(n for n, _ in blocks), directions.scores_a_row), np.nan, np.float32)
        known = [block for _, block in blocks if block is not None]
        if known:
            has = np.repeat([block is not None for _, block in blocks], [n for n, _ in blocks])
            scores[has] = directions.scores(np.concatenate(known))
        return scores

    def to_dict(self) -> dict[str, Any]:
        return {"watched": self.watched, "said": self.said, "rows_without": self.rows_without}


def _features_of(path: Path, width: int, sha256: str) -> Rows | None:
    """Of every row, labelled or not; None where the file holds none. Another export of the same network, such as int8,
    moves features, and what is normal would be off from the first row."""
    rows = read_predictions(path, features=True)
    features, made_by = rows.features, rows.source.model.get("onnx_sha256")
    if features is None:
        return None
    if features.shape[1] != width:
        raise DataError(
            f"has {features.shape[1]:,} features a row, and the model puts out {width:,}",
            where=path,
            fix=_FIX,
        )
    if not made_by:
        log.warning("%s: does not say which file its features are of; they must be of the one that is served", path)
    elif made_by != sha256:
        raise DataError(
            f"its features are of another file ({str(made_by)[:12]}...) than the served one ({sha256[:12]}...)",
            where=path,
            fix=_FIX,
        )
    return features[np.isfinite(features).all(axis=1)]
