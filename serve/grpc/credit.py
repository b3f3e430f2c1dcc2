"""What frames cost that bring no call nearer to its answer: whoever sends too many of them is cut off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from calibrant.serve.grpc.frames import ENHANCE_YOUR_CALM, ConnectionFault

if TYPE_CHECKING:
    from calibrant.serve.grpc.outflow import Outflow

MOST, PER_SECOND, OF_A_CALL, OF_AN_ANSWER_FRAME = 20_000, 200, 5, 3
OF_A_WORD, OF_AN_EMPTY_FRAME, OF_A_RESET, OF_A_CONTINUATION, OF_SETTINGS = 4, 10, 15, 20, 40


class Credit:
    """Of one connection. Calls that are answered and time bring it back."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._left, self._at = float(MOST), time.monotonic()

    def spend(self, cost: int, out: Outflow) -> None:
        """`out` knows how many frames of answers the caller had to make room for."""
        self._left -= cost
        if self._left >= 0:
            return
        now = time.monotonic()
        earned = (now - self._at) * PER_SECOND + out.data_frames * OF_AN_ANSWER_FRAME
        self._left, self._at, out.data_frames = min(MOST, self._left + earned), now, 0
        if self._left < 0:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many frames that bring no call nearer to its answer")

    def earn(self) -> None:
        """A call has ended."""
        if self._left < MOST:
            self._left += OF_A_CALL
