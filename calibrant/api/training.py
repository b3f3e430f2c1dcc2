"""Training from a notebook: the same runs as the commands write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.api.run import Run
from calibrant.train.config import train_config
from calibrant.train.settings_table import laid_over, nested

if TYPE_CHECKING:
    from calibrant.train.data.split import Splits
    from calibrant.train.loop.epochs import Epoch


def train(
    data: str | Path | Splits,
    *,
    out: str | Path = "runs/train",
    config: Mapping[str, Any] | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_epoch: Callable[[Epoch], None] | None = None,
    **flags: Any,
) -> Run:
    """Trains a classifier on pictures in any layout and gives its run.

    run = calibrant.train("leaves", model="resnet18", image_size=64, loss="vace", epochs=20, out="runs/leaves")

    `flags` are those of `calibrant train`; `settings` all others by their full names, {"augment.mixup": 0.2}; `config`
    a TOML file, or its tables. `resume` goes on where the run stopped.
    """
    from calibrant.config import read_toml
    from calibrant.train.data.split import Splits
    from calibrant.train.engine import fit

    table = read_toml(config) if isinstance(config, str | Path) else nested(config or {})
    splits = data if isinstance(data, Splits) else None
    given = {"out": out, **flags, **({} if splits is not None else {"data": data})}
    table = laid_over(table, {k: str(v) if isinstance(v, Path) else v for k, v in given.items() if v is not None})
    for name, value in (settings or {}).items():
        table = laid_over(table, {name: value})
    resolved = train_config(table, where="train()")
    return Run(fit(resolved, splits=splits, resume=resume, overwrite=overwrite, on_epoch=on_epoch))


def fit_head(
    features: str | Path,
    *,
    out: str | Path,
    config: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    device: str = "cpu",
) -> Run:
    """Trains a head on cached features in seconds and gives its run.

    features: what `calibrant features` wrote. settings: those of `calibrant head`, {"head.kind": "logistic"}.
    data: the pictures, for the comparison that `export` makes.
    """
    from calibrant.train.heads.config import head_config
    from calibrant.train.heads.device import chosen_device
    from calibrant.train.heads.experiment import run_experiment
    from calibrant.train.heads.features.cache import FeatureCache
    from calibrant.train.heads.matrices import Matrices
    from calibrant.train.heads.run import write_run

    table = nested(config or {})
    for name, value in (settings or {}).items():
        table = laid_over(table, {name: value})
    cache = FeatureCache.open(features)
    result = run_experiment(Matrices(cache), head_config(table, where="fit_head()"), device=chosen_device(device))
    return Run(write_run(Path(out), cache, result, data=None if data is None else Path(data)).path)
