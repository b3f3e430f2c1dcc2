"""One head from a feature cache: rows, training, post-hoc fit, metrics. A function of (cache, config) alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.settings.heads import HeadConfig, HeadDataConfig
from calibrant.train.data.folds import stable_folds
from calibrant.train.heads.cross_validation import OutOfFold, cross_validate
from calibrant.train.heads.features.cache import FeatureRows
from calibrant.train.heads.features.mixed_views import is_mixed
from calibrant.train.heads.matrices import Matrices
from calibrant.train.heads.posthoc import PostHoc, fit_posthoc
from calibrant.train.heads.scores import intervals, measure
from calibrant.train.heads.split import Fold, hold_out, redraw
from calibrant.train.heads.training.ensemble import train_heads
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.seeds import derive

Logits = NDArray[np.float32]
_NEAR_BAYES = 0.25  # a fitted remainder that brings the total to about 1 corrects nothing twice


@dataclass(frozen=True)
class HeadResult:
    config: HeadConfig
    trained: TrainedHead
    posthoc: PostHoc
    fold: Fold
    counts: NDArray[np.int64]  # (C,) training images
    val: FeatureRows
    test: FeatureRows | None
    val_logits: NDArray[np.float32]  # what the head claims
    test_logits: NDArray[np.float32] | None
    val_metrics: dict[str, float]  # with redraws the mean over all divisions
    test_metrics: dict[str, float] | None
    background: int | None = None  # class that macro_f1_fg leaves out
    folds: NDArray[np.intp] | None = None  # of each row of val, where those were judged out of fold
    prior_counts: NDArray[np.int64] | None = None  # the same by labels of mixed views; None: counts

    @property
    def test_intervals(self) -> dict[str, tuple[float, float]]:
        if self.test is None or self.test_logits is None:
            return {}
        return intervals(softmax(self.test_logits), self.test.labels)

    @property
    def prior(self) -> NDArray[np.int64]:
        """The class prior that training showed, as numbers of images."""
        return self.counts if self.prior_counts is None else self.prior_counts

    @property
    def corrections(self) -> dict[str, float]:
        """Every correction of the class prior by name; their sum is the total strength."""
        after = {"post hoc": self.posthoc.tau} if self.posthoc.tau else {}
        return {**self.trained.corrections, **after}

    @property
    def total_strength(self) -> float:
        return sum(self.corrections.values())

    def double_correction(self) -> str | None:
        """One line where the prior is corrected by more than one means and the total is not Bayes' 1."""
        if len(self.corrections) < 2 or abs(self.total_strength - 1) <= _NEAR_BAYES:
            return None
        parts = " + ".join(f"{name} {value:.2f}" for name, value in self.corrections.items())
        return (
            f"the class prior is corrected {len(self.corrections)} times: {parts} = {self.total_strength:.2f} in total"
        )


def run_experiment(
    matrices: Matrices,
    config: HeadConfig,
    *,
    device: str | torch.device = "cpu",
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> HeadResult:
    """Train and measure one head. Temperature, strength and shifts see validation rows only."""
    cache, data = matrices.cache, config.data
    names = cache.class_names
    background = _background(data.background, names)
    held_out = "val" in cache.manifest.splits and data.val_per_class is None
    _refuse(config, held_out=held_out)
    if data.folds is not None:
        rows = _everything(matrices, data)
        folds = stable_folds(rows.labels, rows.ids, data.folds, seed=config.seed)
        test = matrices.shown("test", data)[0] if "test" in cache.manifest.splits else None
        return cross_validated(config, rows, folds, names, test=test, background=background, device=device)
    labels = matrices.part("train", data.train_views[0]).labels
    fold = _division(matrices, config, labels)
    counts = np.bincount(labels[fold.train], minlength=len(names)).astype(np.int64)
    asked = matrices.shown("val", data) if held_out else matrices.shown("train", data, fold.val)
    val = asked[0]
    if not len(val.labels):
        raise DataError("there are no validation rows", fix="set data.val_per_class")
    tested = matrices.shown("test", data) if "test" in cache.manifest.splits else ()

    trained, val_logits = _trained(matrices, config, fold, asked, device, on_epoch)
    divisions = [(val_logits, val.labels)]
    for i in range(config.posthoc.redraws):
        again = redraw(fold, labels, derive(config.seed, "redraw", i))
        part = matrices.shown("train", data, again.val)
        divisions.append((_trained(matrices, config, again, part, device)[1], part[0].labels))
    prior_counts = _label_counts(matrices, data, fold, counts)
    posthoc = fit_posthoc(
        config.posthoc,
        np.concatenate([z for z, _ in divisions]),
        np.concatenate([y for _, y in divisions]),
        prior_counts,
        claims=trained.loss is not None,
        class_names=names,
    )
    test = tested[0] if tested else None
    test_logits = None if test is None else _claimed(trained, tested, device)

    def metrics(z: Logits, y: NDArray[np.int64]) -> dict[str, float]:
        return measure(posthoc.probabilities(z), y, counts, background=background)

    scores = [metrics(z, y) for z, y in divisions]
    return HeadResult(
        config,
        trained,
        posthoc,
        fold,
        counts,
        val,
        test,
        val_logits,
        test_logits,
        {name: float(np.mean([s[name] for s in scores])) for name in scores[0]},
        None if test is None or test_logits is None else metrics(test_logits, test.labels),
        background,
        prior_counts=prior_counts,
    )


def _refuse(config: HeadConfig, *, held_out: bool) -> None:
    """Settings that mean nothing together. `held_out`: the cache has validation rows of its own, which are used."""
    data = config.data
    mixed = [view for view in data.test_views if is_mixed(view)]
    if mixed:
        raise ConfigError(f"{mixed[0]} shows two images in one", where="data.test_views", fix="measure on others")
    if data.average == "logits" and len(data.test_views) < 2:
        raise ConfigError(
            "data.average = logits averages over one view", where="data.average", fix="name data.test_views"
        )
    if data.folds is None and config.posthoc.redraws and held_out:
        raise ConfigError(
            "posthoc.redraws divides training images anew, and this cache has a validation split of its own",
            where="posthoc.redraws",
            fix="set data.val_per_class, or leave it out",
        )


def _division(matrices: Matrices, config: HeadConfig, labels: NDArray[np.int64]) -> Fold:
    """Which training images are learnt from, and which are kept for validation where there is no split for that."""
    data = config.data
    return hold_out(
        labels,
        matrices.cache.class_names,
        val_per_class=data.val_per_class,
        val_fraction=data.val_fraction,
        imbalance=data.imbalance,
        order_seed=data.order_seed,
        split_seed=config.seed if data.split_seed is None else data.split_seed,
        has_val="val" in matrices.cache.manifest.splits,
    )


def _trained(
    matrices: Matrices,
    config: HeadConfig,
    division: Fold,
    validation: tuple[FeatureRows, ...],
    device: str | torch.device,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> tuple[TrainedHead, Logits]:
    """A head of one division's training rows, and what it claims of the validation rows."""
    x, y, views = matrices.stacked("train", config.data.train_views, division.train)
    val_x = torch.from_numpy(validation[0].features).to(device)
    trained = train_heads(
        config,
        x.to(device),
        y.to(device),
        len(matrices.cache.class_names),
        copies=len(config.data.train_views),
        views=views.to(device),
        validation=(val_x, torch.from_numpy(validation[0].labels).to(device)),
        on_epoch=on_epoch,
    )
    return trained, _claimed(trained, validation, device)


def _label_counts(matrices: Matrices, data: HeadDataConfig, fold: Fold, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Images of each class as the head was shown them: a transplanted patch counts for its class by its area."""
    if not any(is_mixed(view) for view in data.train_views):
        return counts
    _, y, views = matrices.stacked("train", data.train_views, fold.train)
    mass = views.mass(y, len(counts)).numpy()
    shown: NDArray[np.int64] = np.round(mass * counts.sum() / mass.sum()).astype(np.int64)
    return np.maximum(shown, np.minimum(counts, 1))


def cross_validated(
    config: HeadConfig,
    rows: FeatureRows,
    folds: NDArray[np.intp],
    names: Sequence[str],
    *,
    test: FeatureRows | None = None,
    background: int | None = None,
    device: str | torch.device = "cpu",
    on_fold: Callable[[], None] = lambda: None,
) -> HeadResult:
    """The head of all rows; temperature, strength and shifts see what K others said of rows they were not shown."""
    x = torch.from_numpy(rows.features).to(device)
    out = cross_validate(config, x, rows.labels, folds, len(names), on_fold=on_fold)
    return head_result(config, rows, out, folds, names, test=test, background=background, device=device)


def head_result(
    config: HeadConfig,
    rows: FeatureRows,
    out: OutOfFold,
    folds: NDArray[np.intp],
    names: Sequence[str],
    *,
    test: FeatureRows | None = None,
    background: int | None = None,
    device: str | torch.device = "cpu",
) -> HeadResult:
    """The head of all rows, with what was said of those in `out`."""
    classes = len(names)
    x, y = torch.from_numpy(rows.features).to(device), torch.from_numpy(rows.labels).to(device)
    trained = train_heads(config, x, y, classes)
    counts = np.bincount(rows.labels, minlength=classes).astype(np.int64)
    labels = rows.labels[out.rows]
    claims = trained.loss is not None
    posthoc = fit_posthoc(config.posthoc, out.logits, labels, counts, claims=claims, class_names=names)

    def metrics(z: Logits, y: NDArray[np.int64]) -> dict[str, float]:
        return measure(posthoc.probabilities(z), y, counts, background=background)

    test_logits = None if test is None else _claimed(trained, (test,), device)
    return HeadResult(
        config,
        trained,
        posthoc,
        Fold(np.arange(len(rows.labels)), out.rows),
        counts,
        FeatureRows(tuple(rows.ids[i] for i in out.rows), labels, rows.features[out.rows]),
        test,
        out.logits,
        test_logits,
        metrics(out.logits, labels),
        None if test is None or test_logits is None else metrics(test_logits, test.labels),
        background,
        folds[out.rows],
    )


def _everything(matrices: Matrices, data: HeadDataConfig) -> FeatureRows:
    """Training and validation rows together, for folds."""
    for name, idle in (("val_per_class", data.val_per_class is not None), ("imbalance", data.imbalance > 1)):
        if idle:
            raise ConfigError(f"data.folds judges all rows, and data.{name} takes some away", fix="set one of the two")
    if data.train_views != data.test_views:
        raise ConfigError("data.folds needs the same views to train and to test", where="data.train_views")
    if data.average != "features":
        raise ConfigError("data.folds averages features", where="data.average", fix="leave it out")
    parts = [matrices.averaged(s, data.test_views) for s in ("train", "val") if s in matrices.cache.manifest.splits]
    return FeatureRows(
        tuple(i for p in parts for i in p.ids),
        np.concatenate([p.labels for p in parts]),
        np.concatenate([p.features for p in parts]),
    )


def _claimed(trained: TrainedHead, shown: Sequence[FeatureRows], device: str | torch.device) -> Logits:
    """What the head claims of rows; of several views of them the mean of its logits, before class temperatures."""
    z = [trained.logits(torch.from_numpy(part.features).to(device)) for part in shown]
    result: Any = trained.claimed(z[0] if len(z) == 1 else torch.stack(z).mean(0)).float().cpu().numpy()
    return np.asarray(result, np.float32)


def _background(name: str | None, names: Sequence[str]) -> int | None:
    if name is None:
        return None
    if name not in names:
        raise ConfigError(f'no class "{name}"', where="data.background", fix=did_you_mean(name, names))
    return names.index(name)
