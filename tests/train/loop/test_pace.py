"""How long an epoch will take, told once."""

from __future__ import annotations

import time

import pytest

from calibrant.train.loop.pace import Pace


@pytest.mark.parametrize(
    ("batch", "epochs", "expected"),
    [
        (1.0, 4, ["about 20 s an epoch, 80 s in all, and validation beside it"]),
        (60.0, 6, ["about 20 min an epoch, 2.0 h in all, and validation beside it"]),
        (0.25, 1, []),  # over in five seconds
    ],
)
def test_it_is_told_once_from_the_batches_after_the_first(
    monkeypatch: pytest.MonkeyPatch, batch: float, epochs: int, expected: list[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told: list[str] = []
    pace = Pace(told.append, batches=20, epochs=epochs)
    now[0] += 500.0  # the first batch compiles, reads, allocates
    for _ in range(20):
        pace.batch()
        now[0] += batch
    assert told == expected
