"""Ctrl-C: the first one is noted, so that what runs can end and be saved; the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupts:
    """`noted` after the first Ctrl-C inside `caught()`, which raises KeyboardInterrupt at its end."""

    def __init__(self) -> None:
        self.noted = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(signum: int, frame: Any) -> None:
            if self.noted:
                raise KeyboardInterrupt
            self.noted = True

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if self.noted:
            raise KeyboardInterrupt
