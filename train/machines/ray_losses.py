"""What is done about a process that failed. Imported where Ray Train is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ray.train import UserCallback

from calibrant.errors import CalibrantError, ModelError
from calibrant.remote.ray_session import said
from calibrant.train.machines.ray_worker import Lost

TRIES = 3  # starts of the group from one and the same checkpoint
_SAME_SECONDS = 4.0  # Ray looks every two seconds, and a new group takes longer than this to fail


class Losses(UserCallback):  # type: ignore[misc]
    """Ends the training where starting again would not help: an error of ours, or no progress. Ray starts the group
    again after everything else, as often as it takes."""

    def __init__(self, checkpoint: Path, ear: Any) -> None:
        self.checkpoint, self.ear = checkpoint, ear
        self._stamp: int | None = None
        self._failed = 0
        self._last: tuple[str, float] = ("", 0.0)

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            if isinstance(error, CalibrantError):
                raise error
        rank, first = min(worker_exceptions.items())
        reason = said(first).split(". ")[0]  # Ray goes on for a paragraph
        words, before = f"process {rank} failed ({reason})", self._last
        self._last = (words, time.monotonic())
        if words == before[0] and self._last[1] - before[1] < _SAME_SECONDS:
            return  # one loss, looked at twice
        stamp = self.checkpoint.stat().st_mtime_ns if self.checkpoint.is_file() else None
        self._failed = self._failed + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        if self._failed >= TRIES:
            raise ModelError(
                f"{words}, {TRIES} times in a row without a new checkpoint",
                where=self.checkpoint.parent,
                fix="what is finished is kept: mend that and pass --resume",
            )
        self.ear.hear.remote(Lost(f"{words}; the group is started again at the last checkpoint"))
