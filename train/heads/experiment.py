"""One head from a feature cache: rows, training, post-hoc fit, metrics. A function of (cache, config) alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import ConfigError, DataError, did_you_mean
from calibrant.settings.heads import HeadConfig, HeadDataConfig
from calibrant.train.data.folds import stable_folds
from calibrant.train.heads.cross_validation import OutOfFold, cross_validate
from calibrant.train.heads.features.cache import FeatureCache, FeatureRows
from calibrant.train.heads.posthoc import PostHoc, fit_posthoc
from calibrant.train.heads.scores import measure
from calibrant.train.heads.split import Fold, hold_out, redraw
from calibrant.train.heads.training.ensemble import train_heads
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.seeds import derive

Logits = NDArray[np.float32]
_NEAR_BAYES = 0.25  # a fitted remainder that brings the total to about 1 corrects nothing twice


class Matrices:
    """A cache in memory, each (split, view) read once."""

    def __init__(self, cache: FeatureCache) -> None:
        self.cache = cache
        self._read: dict[tuple[str, str], FeatureRows] = {}

    def part(self, split: str, view: str) -> FeatureRows:
        key = (split, view)
        if key not in self._read:
            self._read[key] = self.cache.read(split, view)
        return self._read[key]

    def averaged(self, split: str, views: Sequence[str], rows: NDArray[np.intp] | None = None) -> FeatureRows:
        """Features averaged over views: of a linear head the same as averaging logits."""
        parts = [self.part(split, view) for view in views]
        first = parts[0]
        index = np.arange(len(first.labels)) if rows is None else rows
        total = parts[0].features[index].copy()
        for p in parts[1:]:
            total += p.features[index]
        if len(parts) > 1:
            total /= len(parts)
        return FeatureRows(tuple(first.ids[i] for i in index), first.labels[index], total)

    def stacked(self, split: str, views: Sequence[str], rows: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        """Every view of every row, one view after the other."""
        parts = [self.part(split, view) for view in views]
        x = np.concatenate([p.features[rows] for p in parts])
        y = np.concatenate([p.labels[rows] for p in parts])
        return torch.from_numpy(x), torch.from_numpy(y)


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
    if data.folds is not None:
        rows = _everything(matrices, data)
        folds = stable_folds(rows.labels, rows.ids, data.folds, seed=config.seed)
        test = matrices.averaged("test", data.test_views) if "test" in cache.manifest.splits else None
        return cross_validated(config, rows, folds, names, test=test, background=background, device=device)
    labels = matrices.part("train", data.train_views[0]).labels
    has_val = "val" in cache.manifest.splits
    fold = hold_out(
        labels,
        names,
        val_per_class=data.val_per_class,
        val_fraction=data.val_fraction,
        imbalance=data.imbalance,
        order_seed=data.order_seed,
        split_seed=config.seed if data.split_seed is None else data.split_seed,
        has_val=has_val,
    )
    counts = np.bincount(labels[fold.train], minlength=len(names)).astype(np.int64)
    held_out = has_val and data.val_per_class is None
    if config.posthoc.redraws and held_out:
        raise ConfigError(
            "posthoc.redraws divides training images anew, and this cache has a validation split of its own",
            where="posthoc.redraws",
            fix="set data.val_per_class, or leave it out",
        )
    val = (
        matrices.averaged("val", data.test_views)
        if held_out
        else (matrices.averaged("train", data.test_views, fold.val))
    )
    if not len(val.labels):
        raise DataError("there are no validation rows", fix="set data.val_per_class")
    test = matrices.averaged("test", data.test_views) if "test" in cache.manifest.splits else None

    def train(
        chosen: Fold, validation: FeatureRows, report: Callable[[int, float], None]
    ) -> tuple[TrainedHead, Logits]:
        x, y = matrices.stacked("train", data.train_views, chosen.train)
        val_x = torch.from_numpy(validation.features).to(device)
        trained = train_heads(
            config,
            x.to(device),
            y.to(device),
            len(names),
            copies=len(data.train_views),
            validation=(val_x, torch.from_numpy(validation.labels).to(device)),
            on_epoch=report,
        )
        return trained, _claimed(trained, val_x)

    trained, val_logits = train(fold, val, on_epoch)
    divisions = [(val_logits, val.labels)]
    for i in range(config.posthoc.redraws):
        again = redraw(fold, labels, derive(config.seed, "redraw", i))
        part = matrices.averaged("train", data.test_views, again.val)
        divisions.append((train(again, part, lambda epoch, loss: None)[1], part.labels))
    posthoc = fit_posthoc(
        config.posthoc,
        np.concatenate([z for z, _ in divisions]),
        np.concatenate([y for _, y in divisions]),
        counts,
        claims=trained.loss is not None,
        class_names=names,
    )
    test_logits = None if test is None else _claimed(trained, torch.from_numpy(test.features).to(device))

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
    )


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

    test_logits = None if test is None else _claimed(trained, torch.from_numpy(test.features).to(device))
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
    parts = [matrices.averaged(s, data.test_views) for s in ("train", "val") if s in matrices.cache.manifest.splits]
    return FeatureRows(
        tuple(i for p in parts for i in p.ids),
        np.concatenate([p.labels for p in parts]),
        np.concatenate([p.features for p in parts]),
    )


def _claimed(trained: TrainedHead, x: Tensor) -> Logits:
    result: Any = trained.claimed(trained.logits(x)).float().cpu().numpy()
    return np.asarray(result, np.float32)


def _background(name: str | None, names: Sequence[str]) -> int | None:
    if name is None:
        return None
    if name not in names:
        raise ConfigError(f'no class "{name}"', where="data.background", fix=did_you_mean(name, names))
    return names.index(name)
