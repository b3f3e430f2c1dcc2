"""What an epoch will take, told once, as soon as a few batches are done."""

from __future__ import annotations

import time
from collections.abc import Callable

from calibrant.progress import spoken

AFTER = 3.0  # seconds of work without the first batch, which warms up: fewer say little
WORTH = 10.0  # a training that is over sooner needs no word


class Pace:
    def __init__(self, say: Callable[[str], None], batches: int, epochs: int) -> None:
        """batches: of a whole epoch; epochs: that are still to come."""
        self._say: Callable[[str], None] | None = say
        self._batches, self._epochs = batches, epochs
        self._done, self._began = 0, 0.0

    def batch(self) -> None:
        """One is done."""
        if self._say is None:
            return
        now = time.monotonic()
        if self._done == 0:
            self._began = now
        elif now - self._began >= AFTER:
            self._tell((now - self._began) / self._done)
        self._done += 1

    def _tell(self, seconds: float) -> None:
        """seconds: of one batch."""
        say, self._say = self._say, None
        epoch = seconds * self._batches
        if say is not None and epoch * self._epochs >= WORTH:
            say(f"about {spoken(epoch)} an epoch, {spoken(epoch * self._epochs)} in all, and validation beside it")
