"""One process of a group of Ray Train: the same fit() as everywhere, in a group that Ray has joined."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibrant import plugins
from calibrant.errors import ConfigError, MissingExtra, ModelError
from calibrant.train.config import TrainConfig
from calibrant.train.loop.epochs import Epoch

_LAST_WORD_SECONDS = 10.0


@dataclass(frozen=True)
class Task:
    """`seal`: a file in the run's folder that the driver wrote, to be seen on every machine. `ear`: an actor `Ear`."""

    config: TrainConfig
    launch: str
    seal: Path
    ear: Any
    threads: int
    resume: bool = False
    overwrite: bool = False
    plugins: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Lost:
    """A process, in words."""

    words: str


class Ear:
    """What the processes say, kept beside the driver until that takes it."""

    def __init__(self) -> None:
        self._heard: list[str | Epoch | Lost] = []

    def hear(self, word: str | Epoch | Lost) -> None:
        self._heard.append(word)

    def taken(self) -> list[str | Epoch | Lost]:
        heard, self._heard = self._heard, []
        return heard


def train_here(told: dict[str, Any]) -> None:
    """`told["task"]`, as one of the group. Ray calls it anew in every process of a group that it starts again."""
    import torch

    from calibrant.train.engine import fit

    task: Task = told["task"]
    torch.set_num_threads(task.threads)
    try:
        for source in task.plugins:
            plugins.load(source)
        if not task.seal.is_file():
            raise ModelError(
                "a machine of the cluster does not see this folder",
                where=task.config.out,
                fix="give all machines the same folder under the same path",
            )
        said: list[Any] = []
        fit(
            task.config,
            resume=task.resume,
            overwrite=task.overwrite,
            on_epoch=lambda epoch: said.append(task.ear.hear.remote(epoch)),
            on_start=lambda line: said.append(task.ear.hear.remote(line)),
            launch=task.launch,
        )
        ray = sys.modules.get("ray")
        if said and ray is not None and ray.is_initialized():
            ray.wait(said[-1:], timeout=_LAST_WORD_SECONDS)  # which would die with this process
    except MissingExtra as error:  # which does not survive the way to the driver
        raise ConfigError(error.what, where="a machine of the cluster", fix=error.fix) from None
