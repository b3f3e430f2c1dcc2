"""Quantizes a deployed file and says what it costs: every setting tried is a row of the table.

Static int8 rounds weights so that outputs move least (rounding.py), measures which blocks are sensitive by leaving one
out of the fully quantized network at a time, keeps the worst in float as long as that costs little speed, lets the
float network teach the classifier what the quantized features mean, and re-fits the temperature on the quantized
network's own logits. Each file is run with graph optimisation off and on: onnxruntime may quantize a lone float
convolution again when it loads the file, which shows as a larger error.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx
from numpy.typing import NDArray

from calibrant.calibration import Calibrator
from calibrant.calibration.adjustment import adjusted_logits
from calibrant.errors import CheckFailed, ConfigError, DataError, ModelError, did_you_mean
from calibrant.export import speed
from calibrant.export.assemble import build_tail, calibrator_of, feature_dim, raw_head, write_deployed
from calibrant.export.edit import noted
from calibrant.export.fold import Array, apply_gauge
from calibrant.export.head import cut
from calibrant.export.inspection import check_intact
from calibrant.export.measure import (
    Cost,
    Quality,
    agreement,
    quality,
    ridge,
    rmse,
    run_logits,
    run_outputs,
    time_together,
)
from calibrant.export.parity import softmax
from calibrant.export.quantizers import (
    Body,
    Ranges,
    StaticQuantizer,
    check_quantizable,
    write_dynamic,
    write_half,
)
from calibrant.export.tail import Tail, tail_reads
from calibrant.model_card import ModelCard, Prior
from calibrant.onnx_file import OnnxFile

log = logging.getLogger(__name__)
Method = Literal["auto", "static", "dynamic", "fp16"]
Pixels = NDArray[Any]
LEVEL_GAP = 0.05  # largest relative difference of the error between optimisation off and on
SLOWER = 0.9  # share of the fastest setting's speed that a more accurate one must keep
MOST_FLOAT = 4  # blocks kept in float at most
RANGE_IMAGES = 64  # more change nothing measurable
LEVEL_IMAGES = 64
FLOAT = "float32"


@dataclass(frozen=True)
class Data:
    """Images as the graph takes them. Labels are -1 where unknown; without any, the float network is the teacher."""

    calibration: Pixels  # for activation ranges and the corrections: training images, no labels needed
    images: Pixels  # for the temperature and the table, each half measured with the temperature of the other
    labels: NDArray[np.int64] | None = None

    def halves(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        order = np.random.default_rng(0).permutation(len(self.images))
        return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])


@dataclass(frozen=True)
class Trial:
    """One setting: what stays float, what it measured."""

    name: str
    float_blocks: tuple[str, ...]
    logits: Array  # the network's own, on `Data.images`, after the bias correction
    weight: Array | None  # added to the classifier's weight, where the float network could teach it
    bias: Array  # added to its bias
    rmse: float  # of row-centred logits against the float network
    level_gap: float  # relative difference of that error between optimisation off and on
    agreement: float  # share of equal winners
    clear_agreement: float  # where the float margin exceeds 0.1
    megabytes: float
    cost: Cost
    temperature: float = 1.0  # factor found by the re-fit
    quality: Quality | None = None

    @property
    def stable(self) -> bool:
        return self.level_gap <= LEVEL_GAP


@dataclass(frozen=True)
class Result:
    card: ModelCard
    chosen: Trial
    trials: tuple[Trial, ...]  # the float file first
    sensitivity: dict[str, float] = field(default_factory=dict)  # block: share of the error that it causes
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "chosen": self.chosen.name, "sensitivity": self.sensitivity, "warnings": list(self.warnings),
            "settings": [row(t, self.trials[0]) for t in self.trials],
        }  # fmt: skip


class Workshop:
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
        self.body = Body.of(model)
        self.inputs = [v for v in self.source.inputs if v.name == "images"]
        onnx.save(model, str(folder / "float.onnx"))
        self.float_file = self.bare(folder / "float.onnx")
        self.float_logits = run_logits(self.float_file, data.images)
        self.float_calibration = run_logits(self.float_file, data.calibration)
        self.ranges_from = data.calibration[:: max(1, len(data.calibration) // RANGE_IMAGES)][:RANGE_IMAGES]

    def bare(self, body: Path) -> Path:
        """The body with the raw classifier and nothing else behind it, in place."""
        card = replace(
            self.card, class_temperatures=None, gauge="none", calibrator=None, prior=Prior(), knobs="baked", ood=None,
            outputs=("logits", "features") if self.card.head and self.card.head.input == "features" else ("logits",),
            conformal=None,
        )  # fmt: skip
        file = OnnxFile.open(body)
        file = replace(file, inputs=tuple(self.inputs))
        write_deployed(file, body, card, build_tail(card, self.weight, self.bias, self.dim))
        return body

    def trial(self, name: str, body: Path, float_blocks: Collection[str] = ()) -> Trial:
        file = self.bare(body)
        weight, bias = self.corrected(file) if name != FLOAT else (None, np.zeros(len(self.card.classes)))
        logits = self.logits(file, self.data.images, weight, bias)
        some = self.data.calibration[:LEVEL_IMAGES]
        target = self.float_calibration[:LEVEL_IMAGES]
        errors = [rmse(run_logits(file, some, level=level), target) for level in ("disabled", "all")]
        gap = abs(errors[1] - errors[0]) / max(errors[0], 1e-9) if max(errors) > 1e-4 else 0.0
        same, clear = agreement(logits, self.float_logits, self.probabilities(self.float_logits))
        error = rmse(logits, self.float_logits)
        return Trial(
            name, tuple(float_blocks), logits, weight, bias, error, gap, same, clear,
            body.stat().st_size / 1e6, Cost(),
        )  # fmt: skip

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
            apply_gauge(logits, self.card.gauge), class_temperatures=np.asarray(taus) * factor,
            calibrator=calibrator_of(self.card),  # type: ignore[arg-type]
        )  # fmt: skip

    def refit(self, trial: Trial) -> Trial:
        """Finds the factor on all temperatures on all images; measures each half with the factor of the other half."""
        everything = np.arange(len(self.data.images))
        if trial.name == FLOAT:
            factor, deployed = 1.0, self.formula(trial.logits, 1.0)
        else:
            factor = self._factor(trial.logits, everything)
            deployed = np.empty_like(trial.logits)
            for fit, test in (self.data.halves(), self.data.halves()[::-1]):
                deployed[test] = self.formula(trial.logits[test], self._factor(trial.logits[fit], fit))
        labels = self.data.labels
        measured = None
        if labels is not None and np.any(labels >= 0):
            known = everything[labels >= 0]
            measured = quality(softmax(deployed[known]), labels[known])
        return replace(trial, temperature=factor, quality=measured)

    def _factor(self, logits: Array, rows: NDArray[np.intp]) -> float:
        """argmin of the cross entropy over log factor, by golden section: it has one minimum for scaled logits."""
        labels = self.data.labels
        if labels is not None and np.all(labels[rows] >= 0):
            target = np.eye(logits.shape[1])[labels[rows]]
        else:
            target = softmax(self.formula(self.float_logits[rows], 1.0))

        def loss(log_factor: float) -> float:
            z = self.formula(logits, float(np.exp(log_factor)))
            z = z - z.max(1, keepdims=True)
            return float(np.mean(np.log(np.exp(z).sum(1)) - (target * z).sum(1)))

        low, high, ratio = -1.0, 1.0, (np.sqrt(5) - 1) / 2
        while high - low > 1e-4:
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, b) if loss(a) < loss(b) else (a, high)
        return float(np.exp((low + high) / 2))


def quantize(
    path: str | Path,
    out: str | Path,
    data: Data,
    *,
    method: Method = "auto",
    ranges: Ranges = "minmax",
    keep_float: Sequence[str] | None = None,
    seconds: float = 0.5,
) -> Result:
    """Writes the quantized twin of a deployed file and gives the table of all settings tried.

    keep_float: names of blocks that stay float; None measures which ones pay. seconds: of timing per file.
    """
    path, out = Path(path), Path(out)
    if len(data.calibration) < 8 or len(data.images) < 16:
        raise DataError("quantizing needs at least 8 images for the ranges and 16 for the temperature")
    with tempfile.TemporaryDirectory(prefix="calibrant-quantize-") as scratch:
        shop = Workshop(path, data, Path(scratch))
        wanted = ("dynamic" if shop.body.transformer else "static") if method == "auto" else method
        warnings: list[str] = []
        sensitivity: dict[str, float] = {}
        base = shop.trial(FLOAT, _copy(shop.float_file, Path(scratch) / "base.onnx"))
        files = {FLOAT: Path(scratch) / "base.onnx"}
        if wanted == "static":
            found, sensitivity = _static_trials(shop, ranges, keep_float, files)
            if activation := shop.body.slow_activation:
                warnings.append(f"{activation} has no int8 kernel: expect about 1.1x, not 2x")
        elif wanted in ("dynamic", "fp16"):
            if keep_float:
                raise ConfigError(f"--keep-float does not apply to {wanted}")
            name = "dynamic int8" if wanted == "dynamic" else "fp16"
            files[name] = Path(scratch) / f"{wanted}.onnx"
            (write_dynamic if wanted == "dynamic" else write_half)(shop.body, files[name])
            found = [shop.trial(name, files[name])]
            if wanted == "fp16":
                warnings.append("half precision is for GPUs; on a CPU it is slower than float32")
        else:
            raise ConfigError(f'unknown method "{method}"', fix=did_you_mean(method, ("static", "dynamic", "fp16")))
        costs = time_together(list(files.values()), data.images[: speed.BATCH], seconds=seconds)
        trials = [replace(t, cost=costs[i]) for i, t in enumerate([base, *found])]
        trials = [shop.refit(t) for t in trials]
        chosen = choose(trials[1:])
        card = _write(shop, files[chosen.name], out, chosen, trials[0], wanted, ranges)
        return Result(card, chosen, tuple(trials), sensitivity, tuple(warnings))


def quantize_folders(
    path: str | Path,
    out: str | Path,
    data: Path,
    calibration: Path | None,
    *,
    samples: int = 512,
    method: str = "auto",
    ranges: str = "minmax",
    keep_float: Sequence[str] | None = None,
) -> Result:
    """`quantize` on folders of images: `data` with a folder per class, `calibration` any folder."""
    from calibrant.export.run import real_images
    from calibrant.train.data.folder import read_known_classes

    for value, known in ((method, get_args(Method)), (ranges, get_args(Ranges))):
        if value not in known:
            raise ConfigError(f'unknown setting "{value}"', fix=did_you_mean(value, known))
    card = OnnxFile.open(path).card()
    found = read_known_classes(data, card.classes)
    pixels = np.stack([card.preprocessing.pixels(found.image(i)) for i in range(len(found))])
    as_input = "uint8" if card.input.dtype == "uint8" else "float32"
    images: Pixels = pixels if as_input == "uint8" else card.preprocessing.normalise(pixels)
    labels = found.labels
    if calibration is None:  # a third at most, and what fits the corrections is not in the table
        drawn = np.random.default_rng(0).permutation(len(images))
        count = min(samples, len(images) // 3)
        some, rest = np.sort(drawn[:count]), np.sort(drawn[count:])
        ranges_from, images, labels = images[some], images[rest], labels[rest]
    else:
        ranges_from = real_images(calibration, card.preprocessing, input=as_input, limit=samples)
    return quantize(
        path, out, Data(ranges_from, images, labels), method=method, ranges=ranges, keep_float=keep_float  # type: ignore[arg-type]
    )  # fmt: skip


def choose(trials: Sequence[Trial]) -> Trial:
    """The best agreement among the stable settings that keep nine tenths of the fastest one's speed."""
    stable = [t for t in trials if t.stable]
    if not stable:
        worst = max(trials, key=lambda t: t.level_gap)
        raise CheckFailed(
            f"no setting survives onnxruntime's optimiser: the error of {worst.name} changes by "
            f"{100 * worst.level_gap:.0f} % between optimisation off and on",
            fix="keep whole blocks in float with --keep-float, or none",
        )
    fastest = min(t.cost.large for t in stable)
    return max((t for t in stable if t.cost.large * SLOWER <= fastest), key=lambda t: (t.agreement, -t.cost.large))


def _static_trials(
    shop: Workshop, ranges: Ranges, keep: Sequence[str] | None, files: dict[str, Path]
) -> tuple[list[Trial], dict[str, float]]:
    for name in keep or ():
        if name not in shop.body.blocks:
            raise ConfigError(f'no block "{name}"', where="--keep-float", fix=did_you_mean(name, shop.body.blocks))
    quantizer = StaticQuantizer(shop.body, shop.ranges_from, ranges, shop.folder)

    def attempt(name: str, blocks: Collection[str], **options: bool) -> Trial:
        files[name] = shop.folder / f"trial{len(files)}.onnx"
        quantizer.write(files[name], float_blocks=blocks, **options)
        return shop.trial(name, files[name], blocks)

    trials = [
        attempt("int8, one scale per tensor", (), per_channel=False),
        attempt("int8 per channel, nearest", (), nearest=True),
        attempt("int8 per channel", ()),
    ]
    if keep is not None:
        return [*trials, attempt(f"float: {', '.join(keep)}", keep)] if keep else trials, {}
    sensitivity = _sensitivity(shop, quantizer)
    order = sorted(sensitivity, key=lambda b: -sensitivity[b])
    worst = [b for b in order if sensitivity[b] > 0.08][:MOST_FLOAT]
    place = {block: i for i, block in enumerate(shop.body.blocks)}
    for count in range(1, len(worst) + 1):
        blocks = sorted(worst[:count], key=place.__getitem__)
        trials.append(attempt(f"float: {', '.join(blocks)}", blocks))
    if "head" not in place and len(place) > 1:  # the beginning of the network together, whatever its single shares
        start = list(place)[:2]
        if set(start) not in [set(t.float_blocks) for t in trials]:
            trials.append(attempt(f"float: {', '.join(start)}", start))
    return trials, sensitivity


def _sensitivity(shop: Workshop, quantizer: StaticQuantizer, rows: int = 64) -> dict[str, float]:
    """Share of the squared error of the logits that goes when one block is left out of the fully quantized network.

    Quantizing one block alone would mislead: errors of different blocks partly cancel.
    """
    images, target = shop.data.calibration[:rows], shop.float_calibration[:rows]

    def error(blocks: Collection[str]) -> float:
        path = shop.folder / "probe.onnx"
        quantizer.write(path, float_blocks=blocks)
        return rmse(run_logits(shop.bare(path), images), target) ** 2

    whole = error(())
    return {block: 1.0 - error((block,)) / max(whole, 1e-30) for block in shop.body.blocks}


def _write(shop: Workshop, body: Path, out: Path, chosen: Trial, base: Trial, method: str, ranges: str) -> ModelCard:
    """The chosen body with the whole tail: bias corrected, temperature re-fitted, the table in the card."""
    card, factor = shop.card, chosen.temperature
    calibrator, taus = card.calibrator, card.class_temperatures
    if calibrator is None or calibrator.get("method") == "temperature":
        before = 1.0 if calibrator is None else float(calibrator["parameters"]["temperature"])
        fitted = Calibrator("temperature", len(card.classes), {"temperature": before * factor})
        fitted = fitted.with_context(fitted_on={"rows": len(shop.data.images), "refit": "quantized logits"})
        calibrator = json.loads(fitted.to_json())
    else:
        calibrator = {key: value for key, value in calibrator.items() if key != "conformal"}
        taus = tuple(float(t) * factor for t in (taus or [1.0] * len(card.classes)))
    precision = {
        "dtype": {"static": "int8", "dynamic": "int8", "fp16": "float16"}[method], "method": f"{method} {chosen.name}",
        "float_blocks": list(chosen.float_blocks), "ranges": ranges if method == "static" else None,
        "temperature_factor": factor, "before": row(base, base), "after": row(chosen, base),
    }  # fmt: skip
    card = replace(
        card, calibrator=calibrator, class_temperatures=taus, precision=precision, conformal=None, verify=None,
        metrics={**card.metrics, **speed.entry(chosen.cost.large, min(speed.BATCH, len(shop.data.images)))},
        source={**card.source, "float_graph": card.hashes.get("graph")},
    )  # fmt: skip
    if shop.card.conformal or (shop.card.calibrator or {}).get("conformal"):
        log.warning("the conformal quantiles were fitted on the float file and are dropped")
    weight, bias = shop.weight, shop.bias
    if weight is not None and bias is not None:
        weight, bias = weight + (0.0 if chosen.weight is None else chosen.weight), bias + chosen.bias
    tail: Tail = build_tail(card, weight, bias, shop.dim)
    file = replace(OnnxFile.open(body), inputs=tuple(shop.inputs))
    return write_deployed(file, out, noted(card, f"quantized: {chosen.name}"), tail)


def row(trial: Trial, base: Trial) -> dict[str, Any]:
    """A setting as JSON."""
    measured = {} if trial.quality is None else trial.quality.to_dict()
    return {
        "setting": trial.name, **measured, "agreement": trial.agreement, "agreement_margin_0.1": trial.clear_agreement,
        "rmse": trial.rmse, "level_gap": trial.level_gap, "temperature_factor": trial.temperature,
        "megabytes": trial.megabytes, "speed_1": base.cost.one / max(trial.cost.one, 1e-12),
        "speed_8": base.cost.large / max(trial.cost.large, 1e-12),
    }  # fmt: skip


def _copy(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes())
    return target
