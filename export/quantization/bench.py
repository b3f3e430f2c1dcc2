"""What every setting of a quantization needs: the body, the classifier behind it, and the float network's answers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.adjustment import adjusted_logits
from calibrant.calibration.softmax import log_softmax, softmax
from calibrant.errors import ModelError
from calibrant.export.checks.inspection import check_intact
from calibrant.export.checks.measure import Cost, agreement, quality, ridge, rmse, run_logits, run_outputs
from calibrant.export.graph.assemble import build_tail, calibrator_of, feature_dim, raw_head, write_deployed
from calibrant.export.graph.cutting import cut
from calibrant.export.graph.fold import Array, apply_gauge
from calibrant.export.graph.tail import tail_reads
from calibrant.export.quantization.candidates import FLOAT, Candidate, Data, Pixels
from calibrant.export.quantization.quantizers import BlockGraph, check_quantizable

RANGE_IMAGES = 64  # more change nothing measurable
LEVEL_IMAGES = 64


class Bench:
    """The files of one quantization: the body, the bare classifier behind it, and the float network's answers."""

    def __init__(self, path: Path, data: Data, folder: Path) -> None:
        self.source = OnnxFile.open(path)
        self.card, self.data, self.folder = self.source.card(), data, folder
        check_intact(self.source, self.card)
        if self.card.precision.get("dtype", "float32") != "float32":
            raise ModelError(f"is {self.card.precision['dtype']} already", where=path, fix="quantize the float file")
        head = raw_head(self.source, self.card)
        self.weight: Array | None = None if head is None else head[0]
        self.bias: Array | None = None if head is None else head[1]
        self.dim = feature_dim(self.source, self.card)
        self.tail = build_tail(self.card, self.weight, self.bias, self.dim)
        model = onnx.load(str(path))
        cut(model, tail_reads(self.tail))
        check_quantizable(model)
        self.body = BlockGraph.of(model)
        self.inputs = [v for v in self.source.inputs if v.name == "images"]
        onnx.save(model, str(folder / "float.onnx"))
        self.float_file = self.bare(folder / "float.onnx")
        self.float_logits = run_logits(self.float_file, data.images)
        self.float_calibration = run_logits(self.float_file, data.calibration)
        self.ranges_from = data.calibration[:: max(1, len(data.calibration) // RANGE_IMAGES)][:RANGE_IMAGES]

    def bare(self, body: Path) -> Path:
        """The body with the raw classifier and nothing else behind it, in place."""
        card = replace(
            self.card,
            class_temperatures=None,
            gauge="none",
            calibrator=None,
            prior=Prior(),
            knobs="baked",
            ood=None,
            outputs=("logits", "features") if self.card.head and self.card.head.input == "features" else ("logits",),
            conformal=None,
        )
        file = OnnxFile.open(body)
        file = replace(file, inputs=tuple(self.inputs))
        write_deployed(file, body, card, build_tail(card, self.weight, self.bias, self.dim))
        return body

    def candidate(self, name: str, body: Path, float_blocks: Collection[str] = ()) -> Candidate:
        file = self.bare(body)
        weight, bias = self.corrected(file) if name != FLOAT else (None, np.zeros(len(self.card.classes)))
        logits = self.logits(file, self.data.images, weight, bias)
        some = self.data.calibration[:LEVEL_IMAGES]
        target = self.float_calibration[:LEVEL_IMAGES]
        errors = [rmse(run_logits(file, some, level=level), target) for level in ("disabled", "all")]
        gap = abs(errors[1] - errors[0]) / max(errors[0], 1e-9) if max(errors) > 1e-4 else 0.0
        same, clear = agreement(logits, self.float_logits, self.probabilities(self.float_logits))
        error = rmse(logits, self.float_logits)
        return Candidate(
            name,
            tuple(float_blocks),
            logits,
            weight,
            bias,
            error,
            gap,
            same,
            clear,
            body.stat().st_size / 1e6,
            Cost(),
        )

    def logits(self, file: Path, images: Pixels, weight: Array | None, bias: Array) -> Array:
        """The network's own logits, with the correction of the classifier on top."""
        if weight is None:
            return run_logits(file, images) + bias
        found = run_outputs(file, images, ("logits", self.source_output))
        return np.asarray(found["logits"] + found[self.source_output] @ weight.T + bias)

    def corrected(self, file: Path) -> tuple[Array | None, Array]:
        """What is added to the classifier: a ridge fit of the float logits on the quantized features, and the mean.

        The teacher is the float network, so no label is used. The strength is the one that predicts left-out images
        best; no change of the weights is one of the candidates.
        """
        if self.weight is None:
            return None, np.zeros(len(self.card.classes))  # the tail starts from logits: there is no bias to move
        found = run_outputs(file, self.data.calibration, ("logits", self.source_output))
        residual = self.float_calibration - found["logits"]
        return ridge(found[self.source_output], residual)

    @property
    def source_output(self) -> str:
        return "features" if self.tail.source == "features" else "logits"

    def probabilities(self, logits: Array) -> Array:
        return softmax(self.formula(logits, 1.0))

    def formula(self, logits: Array, factor: float) -> Array:
        """Deployed logits before the prior correction, with all temperatures times `factor`."""
        taus = np.ones(len(self.card.classes)) if self.card.class_temperatures is None else self.card.class_temperatures
        return adjusted_logits(
            apply_gauge(logits, self.card.gauge),
            class_temperatures=np.asarray(taus) * factor,
            calibrator=calibrator_of(self.card),  # type: ignore[arg-type]
        )

    def refit(self, candidate: Candidate) -> Candidate:
        """Finds the factor on all temperatures on all images; measures each half with the factor of the other half."""
        everything = np.arange(len(self.data.images))
        if candidate.name == FLOAT:
            factor, deployed = 1.0, self.formula(candidate.logits, 1.0)
        else:
            factor = self._factor(candidate.logits, everything)
            deployed = np.empty_like(candidate.logits)
            for fit, test in (self.data.halves(), self.data.halves()[::-1]):
                deployed[test] = self.formula(candidate.logits[test], self._factor(candidate.logits[fit], fit))
        labels = self.data.labels
        measured = None
        if labels is not None and np.any(labels >= 0):
            known = everything[labels >= 0]
            measured = quality(softmax(deployed[known]), labels[known], self.probabilities(self.float_logits[known]))
        return replace(candidate, temperature=factor, quality=measured)

    def _factor(self, logits: Array, rows: NDArray[np.intp]) -> float:
        """argmin of the cross entropy over log factor, by golden section: it has one minimum for scaled logits."""
        labels = self.data.labels
        if labels is not None and np.all(labels[rows] >= 0):
            target = np.eye(logits.shape[1])[labels[rows]]
        else:
            target = softmax(self.formula(self.float_logits[rows], 1.0))

        def loss(log_factor: float) -> float:
            z = self.formula(logits, float(np.exp(log_factor)))
            return float(np.mean(-(target * log_softmax(z)).sum(1)))

        low, high, ratio = -1.0, 1.0, (np.sqrt(5) - 1) / 2
        while high - low > 1e-4:
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, b) if loss(a) < loss(b) else (a, high)
        return float(np.exp((low + high) / 2))
