"""The jobs of a study of heads on frozen features."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.errors import ConfigError
from calibrant.train.heads.config import head_config
from calibrant.train.heads.features.cache import MANIFEST, FeatureCache
from calibrant.train.heads.features.extract import FeatureConfig, extract
from calibrant.train.heads.scores import measure
from calibrant.train.heads.sweep.jobs import HeadJob, job_key
from calibrant.train.jobs.claim import turn
from calibrant.train.jobs.rows import pack_rows
from calibrant.train.recipe import laid_over
from calibrant.train.study.plan import Cell, StudyPlan, part_of, taken_from_others
from calibrant.train.study.score import AS_TRAINED, SCORES_VERSION, Score, probabilities

if TYPE_CHECKING:
    from calibrant.train.heads.experiment import HeadResult

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibratedHead(HeadJob):
    """A head, and what each of `posthoc` makes of it on the test images, since its logits are not kept.

    A calibrator is fitted on what the method says of held-out rows: the head's own validation rows, or with data.folds
    all rows out of fold. A [posthoc] of the method is part of what it says, and the calibrator comes after it.
    """

    posthoc: tuple[str, ...] = ()

    def kept(self, result: HeadResult) -> dict[str, Any]:
        return {**super().kept(result), "posthoc": {name: _through(name, result) for name in self.posthoc}}


def _through(name: str, result: HeadResult) -> dict[str, Any] | None:
    if result.test is None or result.test_logits is None:
        return None
    says, labels, counts = result.posthoc.logits, result.test.labels, result.counts
    probs = probabilities(name, says(result.val_logits), result.val.labels, says(result.test_logits))
    return {
        "metrics": measure(probs, labels, counts, background=result.background),
        "rows": pack_rows(probs, labels, counts, result.background),
    }


def study_key(head: str, posthoc: tuple[str, ...]) -> str:
    """Other calibrators are another job: a result holds those that it was run with. Without any it is a sweep's."""
    if not posthoc:
        return head
    return hashlib.sha256(json.dumps([head, list(posthoc), SCORES_VERSION]).encode()).hexdigest()[:32]


class HeadRuns:
    """A data set is a feature cache, or images of which one is made in OUT/features by the [features] table."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan = plan
        self._caches: dict[str, FeatureCache] = {}

    def job(self, cell: Cell) -> CalibratedHead | None:
        """None while another method's head that it takes a number from is missing."""
        plan = self.plan
        d, m = part_of(plan.data, cell.data), part_of(plan.methods, cell.method)
        table: dict[str, Any] = {}
        for over in (plan.study.base, d.set, m.set, plan.scale.set):
            table = laid_over(table, over)
        taken = taken_from_others(self, plan, cell, m)
        if taken is None:
            return None
        settings = [f"{key}={json.dumps(value)}" for key, value in taken.items()]
        config = head_config(table, [*settings, f"seed={cell.seed}"], where=f"{plan.study.title}: {m.name}")
        cache = self.cache(cell.data)
        posthoc = plan.study.posthoc
        return CalibratedHead(cell.method, config, cache.path, study_key(job_key(config, cache), posthoc), posthoc)

    def score(self, job: HeadJob, result: Mapping[str, Any], view: str) -> Score:
        """What the run kept."""
        if result["test"] is None:
            raise ConfigError("has no test images, which a study compares on", where=job.features)
        if view == AS_TRAINED:
            return Score(result["test"], result["test_rows"])
        return Score(**result["posthoc"][view])

    def cache(self, name: str) -> FeatureCache:
        if name not in self._caches:
            self._caches[name] = self._open(name, self.plan.places[name])
        return self._caches[name]

    def _open(self, name: str, place: Path) -> FeatureCache:
        if (place / MANIFEST).is_file():
            return FeatureCache.open(place)
        wanted = {**self.plan.study.features, **self.plan.scale.features}
        if not wanted.get("model"):
            raise ConfigError(
                "is no feature cache, and the study names no model to make one with",
                where=place,
                fix='give a folder of calibrant features, or [features] model = "..." in the study',
            )
        views = tuple(wanted.pop("views", ("eval",)))
        config = FeatureConfig(
            wanted.pop("model"),
            place,
            self.plan.out / "features" / name,
            pretrained=self.plan.weights is None,
            weights=self.plan.weights,
            views=views,
            device="cpu",
            **wanted,
        )
        with turn(self.plan.out, f"features-{name}", lambda: log.warning("another command makes %s", config.out)):
            return extract(config).cache
