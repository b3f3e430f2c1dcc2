"""Edits a deployed file instead of exporting again: another calibrator, prior, threshold or names.

Rewrites the tail of the graph and the metadata, streams the rest through, and writes down what was done. Needs neither
torch nor the onnx package, nor the run that the file came from.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import KEY, ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_rewrite import rewrite
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.label_shift.files import resolved, served_file
from calibrant.errors import CheckFailed, ConfigError, DataError, ModelError, did_you_mean
from calibrant.export.checks import speed
from calibrant.export.checks.golden import renewed
from calibrant.export.checks.inspection import check_intact
from calibrant.export.checks.parity import steady_rows
from calibrant.export.config import check_threshold
from calibrant.export.graph.assemble import (
    build_tail,
    calibrator_of,
    feature_dim,
    knob_defaults,
    raw_head,
    write_deployed,
)
from calibrant.export.graph.fit_context import kept_threshold, warn_if_moved
from calibrant.export.graph.fold import Array, apply_gauge
from calibrant.export.graph.own_prior import map_alone, own_prior, same_shift
from calibrant.export.graph.tail import Tail, tail_reads
from calibrant.export.redecide import redecide, warn_of_moved_sets
from calibrant.priors import read_prior, read_target
from calibrant.runtime import runtime
from calibrant.shares import check_positive

log = logging.getLogger(__name__)
TOLERANCE = 1e-5  # of the edited tail's probabilities against numpy


def recalibrate(path: str | Path, calibrator: Calibrator | None, *, out: str | Path | None = None) -> ModelCard:
    """Puts another fitted calibrator (or none) in the place of the file's own.

    Conformal quantiles belong to the old probabilities and are dropped; so is an abstain threshold that came with the
    old calibrator. One that was set by hand stays.
    """
    file, card = _open(path, out)
    before = card.calibrator
    what = "removed the calibrator"
    if calibrator is not None:
        _check_outcome(calibrator, card, file.path)
        block = map_alone(calibrator)
        what = f"recalibrated: {block['method']}"
        _check_source(block, card, file.path)
        own = own_prior(calibrator, card.prior.train, card.prior.absorbed)
        if own.shift() is not None and not same_shift(own, card.prior):  # it holds the whole formula
            card = replace(card, prior=own)
            what += f", adjusted: total {own.total:g}"
        elif own.shift() is None and card.prior.shift() is not None:
            log.warning(
                "the calibrator holds no prior correction, so the file's own (total %g) stays; calibrant adjust "
                "--strength 0 takes it out",
                card.prior.total,
            )
        card = replace(card, calibrator=block, metrics={**block.get("metrics", {}), **speed.kept(card.metrics)})
    else:
        card = replace(card, calibrator=None, metrics=speed.kept(card.metrics))
    if card.conformal:
        log.warning("the conformal quantiles were fitted on the old probabilities and are dropped")
        card = replace(card, conformal=None)
    warn_if_moved(card.calibrator, card.prior)
    warn_of_moved_sets(card)
    card = replace(card, abstain_below=kept_threshold(card.abstain_below, before, card.calibrator, card.prior))
    return retail(file, card, what, out)


def _check_outcome(calibrator: Calibrator, card: ModelCard, path: Path) -> None:
    fitted = calibrator.fitted_on.get("outcome", "exclusive")
    if fitted != card.outcome:
        raise ConfigError(f"was fitted for {fitted} labels, those of the file are {card.outcome}", where=path)


def adjust(
    path: str | Path,
    strength: float | None = None,
    *,
    target_prior: str | None = None,
    train_prior: str | None = None,
    labelled: str | Path | None = None,
    out: str | Path | None = None,
) -> ModelCard:
    """Another total strength of the prior correction, or another target prior ("uniform", a file, or shares).

    `estimate:SERVED` is the prior of unlabelled predictions, read off with the help of `labelled` ones of this model,
    on which the calibrator's prediction sets and threshold are fitted again for the new prior.
    """
    file, card = _open(path, out)
    if strength is None and target_prior is None and train_prior is None and labelled is None:
        raise ConfigError("nothing to change", fix="give --strength, --target-prior or both")
    if card.independent:
        raise ConfigError(
            "its labels are independent: each has a base rate of its own, and they have no common prior",
            where=path,
            fix="calibrant calibrate --target-prior 0.2,0.05,... and calibrant recalibrate",
        )
    prior = card.prior
    if train_prior is not None:
        found = read_prior(train_prior, card.classes, where="--train-prior")
        check_positive(found, card.classes)
        prior = replace(prior, train=tuple(found.tolist()))
    if prior.train is None:
        raise ConfigError(
            "the file does not know its training prior", where=path, fix="give --train-prior, or export the run again"
        )
    total = prior.total if strength is None else float(strength)
    if not np.isfinite(total):
        raise ConfigError(f"the strength is {total}")
    if target_prior is not None:
        if total == 0 and strength is None and card.knobs == "baked":
            raise ConfigError(
                "a target prior changes nothing, since the file's correction has strength 0",
                where=path,
                fix="say how strongly: --strength 1 is Bayes' rule",
            )
        target = _target(target_prior, card.classes, prior.train, labelled)
        prior = replace(prior, target=None if target is None else tuple(target.tolist()))
    prior = replace(prior, applied=total - prior.absorbed)
    if card.conformal:
        log.warning("the conformal quantiles were fitted on the old probabilities and are dropped")
        card = replace(card, conformal=None)
    warn_if_moved(card.calibrator, prior)
    before, card = card.calibrator, replace(card, prior=prior)
    if labelled is not None:
        card = redecide(card, labelled)
    warn_of_moved_sets(card)
    if card.abstain_below is not None or card.calibrator is not before:
        kept = kept_threshold(card.abstain_below, before, card.calibrator, prior)
        card = replace(card, abstain_below=kept)
    towards = "uniform" if prior.target is None else "a given prior"
    return retail(file, card, f"adjusted: total {total:g} towards {towards}", out)


def _target(
    written: str, classes: Sequence[str], train: Sequence[float] | None, labelled: str | Path | None
) -> NDArray[np.float64] | None:
    if served_file(written) is not None:
        if labelled is None:
            raise ConfigError(
                "an estimate needs labelled predictions of this model too",
                where="--target-prior",
                fix="give --labelled VAL.parquet, as `calibrant predict` writes it",
            )
        written = resolved(written, Path(labelled)) or written
    return read_target(written, classes, train=train)


def set_threshold(path: str | Path, abstain_below: float | None, *, out: str | Path | None = None) -> ModelCard:
    """The confidence under which a server says that it does not know; None never."""
    if abstain_below is not None:
        check_threshold(abstain_below)
    file, card = _open(path, out)
    what = "abstains never" if abstain_below is None else f"abstains below {abstain_below:g}"
    return _restamped(file, replace(card, abstain_below=abstain_below), what, out)


def relabel(path: str | Path, names: Sequence[str] | Mapping[str, str], *, out: str | Path | None = None) -> ModelCard:
    """Other class names: all of them in order, or a table from old to new.

    Pictures in folders of the names before are still read as what they are.
    """
    file, card = _open(path, out)
    if isinstance(names, Mapping):
        for old in names:
            if old not in card.classes:
                raise DataError(f'no class "{old}"', where=path, fix=did_you_mean(old, card.classes))
        names = [str(names.get(c, c)) for c in card.classes]
    if len(names) != len(card.classes):
        raise DataError(f"{len(names)} names for {len(card.classes)} classes", where=path)
    if len(set(names)) != len(names) or not all(names):
        raise DataError("class names must be different and not empty", where=path)
    changed = sum(a != b for a, b in zip(names, card.classes, strict=True))
    former = card.former_classes or card.classes
    card = replace(card, classes=tuple(map(str, names)), former_classes=former)
    return _restamped(file, card, f"relabelled {changed} classes", out)


def restamp(path: str | Path, card: ModelCard) -> ModelCard:
    """Replaces the metadata block and nothing else."""
    rewrite(OnnxFile.open(path), path, metadata=lambda _: {KEY: card.to_json()})
    return card


def _open(path: str | Path, out: str | Path | None) -> tuple[OnnxFile, ModelCard]:
    """The file to edit, behind any link to it, and its card."""
    path = Path(os.path.realpath(path)) if Path(path).is_symlink() else Path(path)
    file = OnnxFile.open(path)
    if out is None and not os.access(path, os.W_OK):
        raise DataError("is read-only", where=path, fix="write the changed file elsewhere with --out")
    card = file.card()
    check_intact(file, card)
    return file, card


def _restamped(file: OnnxFile, card: ModelCard, what: str, out: str | Path | None) -> ModelCard:
    """With another card alone: it answers as before, so its history names the file that it was, as logs know it."""
    with file.path.open("rb") as stream:
        was = hashlib.file_digest(stream, "sha256").hexdigest()
    card = noted(card, what, from_file=was)
    rewrite(file, out or file.path, metadata=lambda _: {KEY: card.to_json()})
    return card


def retail(file: OnnxFile, card: ModelCard, what: str, out: str | Path | None) -> ModelCard:
    """Writes the file with the tail that the new card describes, after checking that tail on random features."""
    head = raw_head(file, file.card())
    weight, bias = head if head is not None else (None, None)
    tail = build_tail(card, weight, bias, feature_dim(file, card), file.outputs[0].dims[0])
    made = {name for node in file.nodes for name in node.outputs}
    if lost := tail_reads(tail) - made - {value.name for value in file.inputs}:
        raise ModelError(
            f"its graph holds no {', '.join(sorted(lost))}, which the calibrator reads",
            where=file.path,
            fix="export the run again with this calibrator",
        )
    difference = check_tail(tail, card)
    verify = {**(card.verify or {}), "edit": {"date": _now(), "max_diff": difference, "against": "numpy"}}
    had = file.card().golden is not None
    card = write_deployed(file, out or file.path, noted(replace(card, verify=verify), what), tail)
    return renewed(out or file.path, card) if had else card


def check_tail(tail: Tail, card: ModelCard) -> float:
    """Largest difference in probabilities between the tail in onnxruntime and the one formula in numpy."""
    from calibrant.calibration.adjustment import adjusted_logits
    from calibrant.calibration.softmax import softmax
    from calibrant.export.graph.tail import standalone

    rng, model = np.random.default_rng(0), standalone(replace(tail, batch="N"))
    if tail.weight is not None and tail.bias is not None:
        x = rng.standard_normal((64, tail.weight.shape[1]))
        spread = float((x @ tail.weight.T).std()) or 1.0
        x = (x * (3.0 / spread)).astype(np.float32)
        z = x.astype(np.float64) @ tail.weight.T + tail.bias
    else:
        x = (3.0 * rng.standard_normal((64, tail.classes))).astype(np.float32)
        z = x.astype(np.float64)
    shift, calibrator = card.prior.shift(), calibrator_of(card)
    features = x if tail.source == "features" else None
    if features is None and tail.feature_dim is not None:
        features = rng.standard_normal((64, tail.feature_dim)).astype(np.float32)

    def formula(raw: Array) -> Array:
        return adjusted_logits(
            apply_gauge(raw, card.gauge),
            class_temperatures=card.class_temperatures,  # type: ignore[arg-type]
            calibrator=calibrator,
            log_prior_ratio=shift,
            strength=0.0 if shift is None else 1.0,
            features=features,
        )

    expected = formula(z)
    bends = calibrator is not None and calibrator.as_affine() is None
    steady = steady_rows(formula, z) if bends else np.ones(len(z), bool)
    feeds: dict[str, NDArray[np.float32]] = {tail.source: x.astype(np.float32)}
    feeds |= {name: np.repeat(row, 64, axis=0) for name, row in knob_defaults(card).items()}
    if features is not None:
        feeds["features"] = features.astype(np.float32)
    got = _run(model, feeds)
    difference = float(np.abs(got - softmax(expected))[steady].max())
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()) / 30.0)
    if not difference <= allowed:
        raise CheckFailed(f"the edited tail differs from the formula by {difference:.2g} (allowed {allowed:.0e})")
    return difference


def _run(model: bytes, feeds: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    ort = runtime()

    from calibrant.calibration.softmax import softmax

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_prepacking", "1")  # another copy of the classifier
    options.enable_cpu_mem_arena = False  # which would keep what the comparison took
    run = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = {i.name for i in run.get_inputs()}  # knobs with defaults are not among them
    return np.asarray(softmax(run.run(["logits"], {k: v for k, v in feeds.items() if k in names})[0]), np.float64)


def noted(card: ModelCard, what: str, **more: str) -> ModelCard:
    """The card with one more line of provenance."""
    entry = {"when": _now(), "what": what, "from_hash": card.hashes.get("graph"), **more}
    return replace(card, history=(*card.history, entry))


def _check_source(block: Mapping[str, Any], card: ModelCard, path: Path) -> None:
    if int(block["classes"]) != len(card.classes):
        raise DataError(f"the calibrator maps {block['classes']} classes, the file has {len(card.classes)}", where=path)
    fitted = block.get("fitted_on", {}).get("model") or {}
    if fitted.get("applied"):
        raise DataError(
            "the calibrator was fitted on answers of a deployed file, so it belongs after that file's own",
            where=path,
            fix="fit it on predictions of the run, or on a feedback log in the dashboard's Production page",
        )
    known, given = card.source.get("checkpoint_sha256"), fitted.get("sha256")
    if known is not None and given is not None and known != given:
        log.warning("the calibrator was fitted on predictions of another model (%s)", fitted.get("run", given[:12]))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
