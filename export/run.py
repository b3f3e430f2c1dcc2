"""Exports a training run: its best epoch, class temperatures, gauge and priors, with a calibrator fitted on it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration import Calibrator
from calibrant.errors import CheckFailed, ConfigError, DataError, ModelError
from calibrant.export.checks import speed
from calibrant.export.checks.parity import Comparison
from calibrant.export.checks.stored_predictions import check_predictions, find_predictions, line
from calibrant.export.config import ExportConfig, Input
from calibrant.export.edit import restamp
from calibrant.export.graph.fit_context import threshold, warn_if_moved
from calibrant.export.graph.reference import TorchReference, prepare
from calibrant.export.graph.settings import About, Interface, Trained
from calibrant.export.graph.wrapper import Body
from calibrant.export.redecide import warn_of_moved_sets
from calibrant.export.to_onnx import export_onnx
from calibrant.images.layouts import list_images
from calibrant.images.listing import ImageListing
from calibrant.images.preprocessing import Preprocessing
from calibrant.priors import read_target
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import listed
from calibrant.train.heads.alone import HEAD_MODEL
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.run import HEAD_FILE
from calibrant.train.run.folder import MODEL_FILE, TrainedModel, load_run, read_config, sha256_of

log = logging.getLogger(__name__)
REAL_IMAGES = 32
STORED_ROWS = 128  # of the run's predictions that are compared at each export


def export_run(run: str | Path | TrainedModel, path: str | Path, config: ExportConfig | None = None) -> ModelCard:
    """Writes the run as one deployed file and gives its model card.

    Images of the run's own data (or of `config.images`) take part in the comparison with torch.
    """
    config = config or ExportConfig()
    trained = run if isinstance(run, TrainedModel) else _trained(Path(run), config)
    calibrator = None if config.calibrator is None else Calibrator.load(config.calibrator)
    _check_calibrator(calibrator, trained, config)
    target = _target(config, trained)
    images: ImageListing | None = None
    real: NDArray[Any] | None = None
    if config.head_only:
        real = own_rows(trained)
    else:
        images = own_images(trained) if config.images is None else list_images(config.images)
        real = None if images is None else real_images(images, trained.preprocessing, input=config.input)
    card = export_onnx(
        trained.network,
        path,
        class_names=trained.class_names,
        preprocessing=trained.preprocessing,
        calibrator=calibrator,
        trained=Trained(trained.class_temperatures, trained.gauge, trained.absorbed),
        train_prior=trained.train_prior,
        target_prior=target,
        adjust=config.adjust,
        prior_floor=config.prior_floor,
        knobs=config.knobs,
        interface=Interface(
            "rows" if config.head_only else config.input,
            config.outputs(),
            ood_block(config.ood, trained.feature_norm),
            config.opset,
        ),
        abstain_below=config.abstain_below,
        about=_about(config, trained, calibrator),
        comparison=Comparison(real) if config.verify else None,
    )
    warn_if_moved(card.calibrator, card.prior)
    warn_of_moved_sets(card)
    if config.abstain_below is None and card.calibrator is not None:
        card = restamp(path, replace(card, abstain_below=threshold(card.calibrator, card.prior)))
    if not config.verify or config.head_only:  # a head's own speed says nothing of a network
        return card
    card = restamp(Path(path), replace(card, metrics={**card.metrics, **speed.measure(path, card)}))
    stored = find_predictions(trained.run)
    if stored is None or images is None:
        return card
    return _check_stored(Path(path), card, stored, images)


def _trained(run: Path, config: ExportConfig) -> TrainedModel:
    if not config.head_only:
        return load_run(run)
    if config.images is not None or config.input != "uint8":
        name = "--images" if config.images is not None else "--input"
        raise ConfigError("a head alone takes rows of features, no pictures", where=name, fix="leave it out")
    return head_of(run)


def head_of(run: Path) -> TrainedModel:
    """The head of a run without its backbone."""
    file = run / HEAD_MODEL
    if not file.is_file():
        fix = "train the head again" if (run / HEAD_FILE).is_file() else "name a run of calibrant head"
        raise ModelError(f"has no {HEAD_MODEL}, so there is no head without a backbone", where=run, fix=fix)
    trained, whole = load_run(file), run / MODEL_FILE
    # Predictions and calibrators name the file of both together, where there is one.
    return replace(trained, sha256=sha256_of(whole)) if whole.is_file() else trained


def own_rows(trained: TrainedModel) -> NDArray[np.float32] | None:
    """Features that the head was measured on, if they are still there."""
    try:
        cache = FeatureCache.open(read_config(trained.run)["features"]["path"])
        split = "test" if "test" in cache.splits() else cache.splits()[0]
        features = cache.read(split, cache.manifest.views[0]).features
    except Exception as error:  # a run without its features still exports; random rows are compared
        log.debug("no features of the run (%s)", error)
        return None
    chosen: NDArray[np.float32] = features[np.unique(np.linspace(0, len(features) - 1, REAL_IMAGES).astype(int))]
    return chosen


def _about(config: ExportConfig, trained: TrainedModel, calibrator: Calibrator | None) -> About:
    return About(
        config.name or trained.run.name,
        config.description,
        config.author,
        config.licence,
        metrics={} if calibrator is None else dict(calibrator.metrics),
        source={"run": trained.run.resolve().name, "model": trained.model_name, "checkpoint_sha256": trained.sha256},
    )


def _check_stored(path: Path, card: ModelCard, stored: Path, images: ImageListing) -> ModelCard:
    """NLL and ECE of the run's own predictions must come out of the file; the result goes into the card."""
    found = check_predictions(path, stored, images, limit=STORED_ROWS)
    if found is None:
        return card
    if not found["passed"]:
        kept = path.with_name(f"{path.stem}.failed{path.suffix}")
        path.replace(kept)
        raise CheckFailed(f"the file does not give what the run's predictions say: {line(found)}", where=kept)
    return restamp(path, replace(card, verify={**(card.verify or {}), "predictions": found}))


def ood_block(kind: str, feature_norm: tuple[float, float] | None) -> dict[str, Any] | None:
    if kind == "none":
        return None
    if kind != "feature-norm":
        return {"kind": kind}
    if feature_norm is None:
        raise ConfigError(
            "the run kept no statistics of feature norms",
            where="--ood feature-norm",
            fix="train with a fedlas loss, which keeps them, or use --ood energy",
        )
    return {"kind": kind, "mu": feature_norm[0], "sd": feature_norm[1]}


def _target(config: ExportConfig, trained: TrainedModel) -> NDArray[np.float64] | None:
    if config.target_prior is None:
        return None
    return read_target(config.target_prior, trained.class_names, train=trained.train_prior)


def _check_calibrator(calibrator: Calibrator | None, trained: TrainedModel, config: ExportConfig) -> None:
    """Was it fitted on this model?"""
    if calibrator is None:
        return
    if calibrator.classes != len(trained.class_names):
        raise ModelError(
            f"the calibrator maps {calibrator.classes} classes, the run has {len(trained.class_names)}",
            where=config.calibrator,
            fix="fit it on this run's predictions",
        )
    model = calibrator.fitted_on.get("model")
    sha256 = model.get("sha256") if isinstance(model, dict) else calibrator.fitted_on.get("model_sha256")
    if sha256 is not None and sha256 != trained.sha256:
        log.warning("%s was fitted on predictions of another model than %s", config.calibrator, trained.run)


def own_images(trained: TrainedModel) -> ImageListing | None:
    """What the run was trained on, if it is still there."""
    try:
        table = read_config(trained.run)["config"]["data"]
        known = {key: table[key] for key in ("layout", "groups", "stage", "train_list") if key in table}
        return listed(DataConfig(path=Path(table["path"]), **known))
    except Exception as error:  # a run without a data folder still exports; random images are compared
        log.debug("no data of the run (%s)", error)
        return None


def real_images(
    listing: ImageListing, preprocessing: Preprocessing, *, input: str = "uint8", limit: int = REAL_IMAGES
) -> NDArray[Any]:
    """Up to `limit` images spread over all that lie there, as the graph takes them."""
    images = listing.whole()
    chosen = np.unique(np.linspace(0, len(images) - 1, limit).astype(int))
    pixels = []
    for i in chosen:
        try:
            pixels.append(preprocessing.pixels(images.image(int(i))))
        except DataError as error:
            log.warning("%s", error)
    if not pixels:
        raise DataError(f"none of {len(chosen)} images can be read", where=listing.where)
    stacked = np.stack(pixels)
    return stacked if input == "uint8" else preprocessing.normalise(stacked)


def reference_of(trained: TrainedModel, card: ModelCard) -> TorchReference:
    """The run behind the formula of a card: what the deployed file must say."""
    from calibrant.export.graph.assemble import calibrator_of

    kind: Input = "rows" if not card.input.pictures else "uint8" if card.input.dtype == "uint8" else "float32"
    body = Body(prepare(trained.network), card.preprocessing, kind)
    return TorchReference(body.eval(), len(card.classes), card, calibrator_of(card))
