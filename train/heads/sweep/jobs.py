"""A head as a job: its key is a hash of the configuration, of what the cache says about itself and of the version."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._version import __version__
from calibrant.config import to_table
from calibrant.errors import ConfigError
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.sweep.plan import SweepPlan
from calibrant.train.jobs.job import changed
from calibrant.train.jobs.rows import pack_rows

if TYPE_CHECKING:
    from calibrant.train.heads.experiment import HeadResult
    from calibrant.train.heads.matrices import Matrices

# Raised by hand when the same configuration gives other numbers than before; old results are then not found again.
# 1 where a kind of head is not named. 2: closed-form heads are adjusted on the scale of their temperature; attention
# pooling pools before it maps values.
RESULTS_VERSION: dict[str, int] = {"lda": 2, "ncm": 2, "map": 2}


@dataclass(frozen=True)
class HeadJob:
    variant: str
    config: HeadConfig
    features: Path
    key: str

    def run(self, out: Path) -> dict[str, Any]:
        return self.kept(self.result())

    def result(self) -> HeadResult:
        from calibrant.train.heads.experiment import run_experiment

        return run_experiment(_matrices(str(self.features)), self.config)

    def kept(self, result: HeadResult) -> dict[str, Any]:
        return {
            "config": to_table(self.config), "total_strength": result.total_strength,
            "corrections": result.corrections, "tau": result.posthoc.tau,
            "val": result.val_metrics, "test": result.test_metrics, "test_rows": _test_rows(result),
            "measured": _measured(result),
        }  # fmt: skip


@lru_cache(maxsize=1)
def _matrices(features: str) -> Matrices:
    """The cache in this process's memory, read once for all jobs on it."""
    from calibrant.train.heads.matrices import Matrices

    return Matrices(FeatureCache.open(features))


def _test_rows(result: HeadResult) -> dict[str, Any] | None:
    if result.test is None or result.test_logits is None:
        return None
    probs = result.posthoc.probabilities(result.test_logits)
    return pack_rows(probs, result.test.labels, result.counts, result.background)


def _measured(result: HeadResult) -> dict[str, float]:
    """The numbers that the loss reports, of the whole training."""
    loss = result.trained.loss
    told = {} if loss is None else loss.diagnostics()
    return {k: float(v) for k, v in told.items() if isinstance(v, int | float) and math.isfinite(v)}


def make_job(plan: SweepPlan, caches: Mapping[str, FeatureCache], variant: str, seed: int) -> HeadJob:
    overrides = plan.variants[variant]
    config, cache = plan.config(overrides, seed), caches[plan.encoder(overrides)]
    return HeadJob(variant, config, cache.path, job_key(config, cache))


def open_caches(plan: SweepPlan) -> dict[str, FeatureCache]:
    """The caches of a plan by name; several are compared image by image, so that they must hold the same ones."""
    caches = {name: FeatureCache.open(path) for name, path in plan.encoders.items()}
    (first, base), *others = caches.items()
    for name, cache in others:
        if cache.class_names != base.class_names:
            raise ConfigError(f"{name} has other classes than {first}", where=cache.path)
        if cache.splits() != base.splits():
            parts = f"{', '.join(cache.splits())}; {', '.join(base.splits())}"
            raise ConfigError(f"{name} has other splits than {first} ({parts})", where=cache.path)
        for split in base.splits():
            if cache.manifest.images[split] == base.manifest.images[split]:
                continue  # the digest of ids, labels and files
            mine, theirs = (c.read(split, c.manifest.views[0]) for c in (cache, base))
            if mine.ids != theirs.ids or mine.labels.tolist() != theirs.labels.tolist():
                fix = "extract both from the same images"
                raise ConfigError(f"{name} has other images in {split} than {first}", where=cache.path, fix=fix)
    return caches


def job_key(config: HeadConfig, cache: FeatureCache) -> str:
    # Views that were added to the cache later change nothing about the others.
    manifest = {k: v for k, v in cache.manifest.to_dict().items() if k not in ("views", "made_with")}
    if manifest["layers"] == 1:  # as it was before there were several
        del manifest["layers"]
    version = RESULTS_VERSION.get(config.head.kind, 1)
    parts = [changed(to_table(config), to_table(HeadConfig())), manifest, __version__, version]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
