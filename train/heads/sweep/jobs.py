"""A job is a configuration with its seed. Its key is a hash of the configuration, of what the cache says about itself
and of the version, and its result is one JSON file under that key, written by rename. So a sweep resumes by skipping
what is there, two sweeps on one cache share results, and machines with a shared folder each take `--shard i/n`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._version import __version__
from calibrant.config import to_table
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.sweep.plan import SweepPlan

logger = logging.getLogger(__name__)

# Raised by hand when the same configuration gives other numbers than before; old results are then not found again.
# 1 where a kind of head is not named. 2: closed-form heads are adjusted on the scale of their temperature; attention
# pooling pools before it maps values.
RESULTS_VERSION: dict[str, int] = {"lda": 2, "ncm": 2, "map": 2}


@dataclass(frozen=True)
class SweepJob:
    variant: str
    config: HeadConfig
    key: str


def make_job(plan: SweepPlan, cache: FeatureCache, variant: str, seed: int) -> SweepJob:
    config = plan.config(plan.variants[variant], seed)
    return SweepJob(variant, config, job_key(config, cache))


def job_key(config: HeadConfig, cache: FeatureCache) -> str:
    # Views that were added to the cache later change nothing about the others.
    manifest = {k: v for k, v in cache.manifest.to_dict().items() if k not in ("views", "made_with")}
    version = RESULTS_VERSION.get(config.head.kind, 1)
    # Only what differs from the defaults counts, so that a switch added to Calibrant later keeps the results of before.
    parts = [_changed(to_table(config), to_table(HeadConfig())), manifest, __version__, version]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _changed(table: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that differ from the defaults, tables within tables."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and isinstance(default.get(key), Mapping) and default[key]:
            inner = _changed(value, default[key])
            found |= {key: inner} if inner else {}
        elif value != default.get(key):
            found[key] = value
    return found


def result_file(out: Path, key: str) -> Path:
    return out / "runs" / f"{key}.json"


def read_result(out: Path, key: str) -> dict[str, Any] | None:
    try:
        result: dict[str, Any] = json.loads(result_file(out, key).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        logger.warning("%s is damaged and will be made again", result_file(out, key))
        return None
    return result
