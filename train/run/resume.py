"""Going on with a run: its own configuration, its checkpoint, and what may not change."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from calibrant import plugins
from calibrant.config import to_table
from calibrant.errors import ConfigError, FormatError, ModelError
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.distributed import any_rank, gather_uneven
from calibrant.train.run.checkpoint import load_checkpoint
from calibrant.train.run.folder import CHECKPOINT_FILE, CONFIG_FILE, read_config

# What may differ when a run goes on: it changes where and how fast, not what comes out.
FREE_ON_RESUME = (
    "data.workers",
    "data.cache_dir",
    "engine.checkpoint_minutes",
    "engine.checkpoint_updates",
)
SIGHT_SECONDS = 60.0  # after which all machines see what one of them has written
# What may grow: a run that is at its end goes on from there.
GROWS_ON_RESUME = "schedule.epochs"


def resumed_config(out: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """The configuration of the run in `out`, to go on with. Overrides are checked by fit()."""
    table = read_config(out)["config"]
    return replace(train_config(table, overrides, where=out / CONFIG_FILE), out=out)


def _refuse_changes(config: TrainConfig, run: Path) -> None:
    """Only what cannot change the result may differ from the run that goes on."""
    # Through the configuration: a run of an earlier version lacks the settings that have come since.
    before, now = flat(to_table(train_config(read_config(run)["config"], where=run))), flat(to_table(config))
    for key in sorted({*before, *now}):
        free = key in FREE_ON_RESUME or key in ("out", "data.path")  # the images themselves are compared
        grown = key == GROWS_ON_RESUME and now[key] > before[key]
        if key == "model.weights" and before.get(key) and now[key]:  # on a cluster all paths are whole
            before[key], now[key] = map(os.path.abspath, (before[key], now[key]))
        if not free and not grown and before.get(key) != now.get(key):
            raise ConfigError(
                f"{key} was {before.get(key)} and is {now.get(key)}, which cannot change when a run goes on",
                where=run,
                fix=f"only {', '.join(FREE_ON_RESUME)} may, and {GROWS_ON_RESUME} may grow; "
                "start a new run for anything else",
            )


def begun_by(run: Path, launch: str | None) -> bool:
    """Whether the processes that are started now did so before: then they go on with the run, unasked."""
    try:
        return launch is not None and read_config(run).get("launch") == launch
    except FormatError:
        return False


def more_epochs(config: TrainConfig) -> bool:
    """Whether the run in `config.out` was planned to be shorter."""
    before = train_config(read_config(config.out)["config"], where=config.out)
    return config.schedule.epochs > before.schedule.epochs


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return result


def state_for_all(config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """state_to_go_on_from() that is the same for all processes: a shared folder may show one of them the checkpoint
    before the last for a while.
    """
    end = time.monotonic() + SIGHT_SECONDS
    while True:
        state = state_to_go_on_from(config)
        at = state["position"]
        seen = gather_uneven(torch.tensor([[at["epoch"], at["step"], at["update"]]], device=device)).tolist()
        if all(place == seen[0] for place in seen):
            return state
        if any_rank(time.monotonic() > end, device):
            raise ModelError(
                f"processes see different checkpoints for {SIGHT_SECONDS:g} s",
                where=config.out,
                fix="give all machines the same folder under the same path",
            )
        time.sleep(1.0)


def state_to_go_on_from(config: TrainConfig) -> dict[str, Any]:
    """The checkpoint of a run that was told otherwise only in what cannot change the result."""
    checkpoint = config.out / CHECKPOINT_FILE
    if not checkpoint.is_file():
        raise ConfigError("has no checkpoint to go on from", where=config.out, fix="start it anew, with --overwrite")
    plugins.require_same(read_config(config.out).get("plugins", ()), config.out)
    _refuse_changes(config, config.out)
    return load_checkpoint(checkpoint)
