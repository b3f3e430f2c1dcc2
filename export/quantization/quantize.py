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
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.export.checks import speed
from calibrant.export.checks.golden import with_golden_rows
from calibrant.export.checks.measure import ASKED, ASKED_CLEAR, rmse, run_logits, time_together
from calibrant.export.edit import noted
from calibrant.export.graph.assemble import build_tail, write_deployed
from calibrant.export.graph.tail import Tail
from calibrant.export.quantization.bench import Bench
from calibrant.export.quantization.candidates import FLOAT, Candidate, Data, Pixels, Result, choose, row
from calibrant.export.quantization.quantizers import Ranges, StaticQuantizer, require_int8, write_dynamic, write_half
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL
from calibrant.images.layouts import list_images

log = logging.getLogger(__name__)
Method = Literal["auto", "static", "dynamic", "fp16"]
MOST_FLOAT = 4  # blocks kept in float at most


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
        bench = Bench(path, data, Path(scratch))
        wanted = ("dynamic" if bench.body.transformer else "static") if method == "auto" else method
        warnings: list[str] = []
        sensitivity: dict[str, float] = {}
        base = bench.candidate(FLOAT, _copy(bench.float_file, Path(scratch) / "base.onnx"))
        files = {FLOAT: Path(scratch) / "base.onnx"}
        if wanted == "static":
            found, sensitivity = _static_candidates(bench, ranges, keep_float, files)
            if activation := bench.body.slow_activation:
                warnings.append(f"{activation} has no int8 kernel: expect about 1.1x, not 2x")
        elif wanted in ("dynamic", "fp16"):
            if keep_float:
                raise ConfigError(f"--keep-float does not apply to {wanted}")
            name = "dynamic int8" if wanted == "dynamic" else "fp16"
            files[name] = Path(scratch) / f"{wanted}.onnx"
            (write_dynamic if wanted == "dynamic" else write_half)(bench.body, files[name])
            if wanted == "dynamic":
                require_int8(files[name], "it holds no matrix product with constant weights: choose static")
            found = [bench.candidate(name, files[name])]
            if wanted == "fp16":
                warnings.append("half precision is for GPUs; on a CPU it is slower than float32")
        else:
            raise ConfigError(f'unknown method "{method}"', fix=did_you_mean(method, ("static", "dynamic", "fp16")))
        costs = time_together(list(files.values()), data.images[: speed.BATCH], seconds=seconds)
        candidates = [replace(t, cost=costs[i]) for i, t in enumerate([base, *found])]
        candidates = [bench.refit(t) for t in candidates]
        chosen = choose(candidates[1:])
        if chosen.agreement < ASKED or chosen.clear_agreement < ASKED_CLEAR:
            warnings.append(
                f"the same winner as float32 in {100 * chosen.agreement:.1f} % of the images and "
                f"{100 * chosen.clear_agreement:.1f} % of the clear ones; `calibrant verify` asks "
                f"{100 * ASKED:.0f} and {100 * ASKED_CLEAR:.0f}"
            )
        card = _write(bench, files[chosen.name], out, chosen, candidates[0], wanted, ranges)
        return Result(card, chosen, tuple(candidates), sensitivity, tuple(warnings))


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
    """`quantize` on images in any layout: `data` with labels (its val or test set), `calibration` with or without."""
    from calibrant.export.run import real_images

    for value, known in ((method, get_args(Method)), (ranges, get_args(Ranges))):
        if value not in known:
            raise ConfigError(f'unknown setting "{value}"', fix=did_you_mean(value, known))
    card = OnnxFile.open(path).card()
    if not card.input.pictures:
        raise ConfigError("takes rows of numbers, and only networks of pictures are quantized", where=path)
    found = held_out(data, card.classes, former=card.former_classes)
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
        ranges_from = real_images(list_images(calibration), card.preprocessing, input=as_input, limit=samples)
    return quantize(
        path,
        out,
        Data(ranges_from, images, labels),
        method=method,  # type: ignore[arg-type]
        ranges=ranges,  # type: ignore[arg-type]
        keep_float=keep_float,
    )


def held_out(data: Path, class_names: Sequence[str], *, former: Sequence[str] = ()) -> ImageSet:
    """Labelled images that the model was not trained on, as far as the data say so."""
    listing = list_images(data)
    split = next((name for name in ("val", "test", ALL) if name in listing.sets), "val")
    images = listing.known_to(class_names, listing.of_split(split), former=former)
    bare = np.flatnonzero(images.labels < 0)
    if len(bare):
        name = None if images.label_names is None else images.label_names[bare[0]]
        what = "has no label" if name is None else f'is of "{name}", which is not a class of the model'
        fix = None if name is None else did_you_mean(name, class_names)
        raise DataError(f"{images.ids[bare[0]]} {what}", where=data, fix=fix)
    return images


def _static_candidates(
    bench: Bench, ranges: Ranges, keep: Sequence[str] | None, files: dict[str, Path]
) -> tuple[list[Candidate], dict[str, float]]:
    for name in keep or ():
        if name not in bench.body.blocks:
            raise ConfigError(f'no block "{name}"', where="--keep-float", fix=did_you_mean(name, bench.body.blocks))
    if keep and set(keep) >= set(bench.body.blocks):
        raise ConfigError("keeps every block in float: nothing is left to quantize", where="--keep-float")
    quantizer = StaticQuantizer(bench.body, bench.ranges_from, ranges, bench.folder)

    def attempt(name: str, blocks: Collection[str], **options: bool) -> Candidate:
        files[name] = bench.folder / f"candidate{len(files)}.onnx"
        quantizer.write(files[name], float_blocks=blocks, **options)
        return bench.candidate(name, files[name], blocks)

    candidates = [
        attempt("int8, one scale per tensor", (), per_channel=False),
        attempt("int8 per channel, nearest", (), nearest=True),
        attempt("int8 per channel", ()),
    ]
    if keep is not None:
        return [*candidates, attempt(f"float: {', '.join(keep)}", keep)] if keep else candidates, {}
    sensitivity = _sensitivity(bench, quantizer)
    order = sorted(sensitivity, key=lambda b: -sensitivity[b])
    worst = [b for b in order if sensitivity[b] > 0.08][: min(MOST_FLOAT, len(bench.body.blocks) - 1)]
    place = {block: i for i, block in enumerate(bench.body.blocks)}
    for count in range(1, len(worst) + 1):
        blocks = sorted(worst[:count], key=place.__getitem__)
        candidates.append(attempt(f"float: {', '.join(blocks)}", blocks))
    if "head" not in place and len(place) > 2:  # the beginning of the network together, whatever its single shares
        start = list(place)[:2]
        if set(start) not in [set(t.float_blocks) for t in candidates]:
            candidates.append(attempt(f"float: {', '.join(start)}", start))
    return candidates, sensitivity


def _sensitivity(bench: Bench, quantizer: StaticQuantizer, rows: int = 64) -> dict[str, float]:
    """Share of the squared error of the logits that goes when one block is left out of the fully quantized network.

    Quantizing one block alone would mislead: errors of different blocks partly cancel. A network that is one block has
    none to leave out, or it would be the float network under the name of int8.
    """
    if len(bench.body.blocks) < 2:
        return {}
    images, target = bench.data.calibration[:rows], bench.float_calibration[:rows]

    def error(blocks: Collection[str]) -> float:
        path = bench.folder / "probe.onnx"
        quantizer.write(path, float_blocks=blocks)
        return rmse(run_logits(bench.bare(path), images), target) ** 2

    whole = error(())
    return {block: 1.0 - error((block,)) / max(whole, 1e-30) for block in bench.body.blocks}


def _write(
    bench: Bench, body: Path, out: Path, chosen: Candidate, base: Candidate, method: str, ranges: str
) -> ModelCard:
    """The chosen body with the whole tail: bias corrected, temperature re-fitted, the table in the card."""
    card, factor = bench.card, chosen.temperature
    calibrator, taus = card.calibrator, card.class_temperatures
    if calibrator is None or calibrator.get("method") == "temperature":
        before = 1.0 if calibrator is None else float(calibrator["parameters"]["temperature"])
        fitted = Calibrator("temperature", len(card.classes), {"temperature": before * factor})
        fitted = fitted.with_context(fitted_on={"rows": len(bench.data.images), "refit": "quantized logits"})
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
        card,
        calibrator=calibrator,
        class_temperatures=taus,
        precision=precision,
        conformal=None,
        verify=None,
        metrics={**card.metrics, **speed.entry(chosen.cost.large, min(speed.BATCH, len(bench.data.images)))},
        source={**card.source, "float_graph": card.hashes.get("graph")},
    )
    if bench.card.conformal or (bench.card.calibrator or {}).get("conformal"):
        log.warning("the conformal quantiles were fitted on the float file and are dropped")
    weight, bias = bench.weight, bench.bias
    if weight is not None and bias is not None:
        weight, bias = weight + (0.0 if chosen.weight is None else chosen.weight), bias + chosen.bias
    tail: Tail = build_tail(card, weight, bias, bench.dim)
    file = replace(OnnxFile.open(body), inputs=tuple(bench.inputs))
    return with_golden_rows(out, write_deployed(file, out, noted(card, f"quantized: {chosen.name}"), tail))


def _copy(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes())
    return target
