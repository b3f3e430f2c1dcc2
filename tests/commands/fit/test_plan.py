"""Times, schedules and sizes that a budget allows, by hand."""

from __future__ import annotations

import pytest

from calibrant.commands.fit.plan import affordable, epochs_for, minutes_of, size_within
from calibrant.errors import ConfigError


def test_times_are_read_with_and_without_a_unit() -> None:
    assert [minutes_of(t) for t in ("90s", "10m", "2h", "5", "1.5 min")] == [1.5, 10, 120, 5, 1.5]
    for text in ("soon", "0m", "-3", "3d"):
        with pytest.raises(ConfigError, match="is not a time"):
            minutes_of(text)


def test_a_hundred_updates_or_four_epochs_and_three_times_that_for_best() -> None:
    assert epochs_for("balanced", 384) == 9  # 12 updates an epoch
    assert epochs_for("balanced", 3200) == 4
    assert epochs_for("best", 3200) == 12
    assert epochs_for("fast", 3200) == 0


def test_the_schedule_fits_the_time_left_or_is_not_begun() -> None:
    assert affordable("balanced", 3200, 0.01, 1e6) == 4
    assert affordable("balanced", 3200, 0.01, 160) == 3  # 0.85 * 160 - 20 = 116 s, 32 s an epoch
    assert affordable("balanced", 3200, 0.01, 40) == 0
    assert affordable("balanced", 320, 0.01, 50) == 7  # 22 s, 3.2 s an epoch: 70 of 100 updates
    assert affordable("balanced", 320, 0.01, 35) == 0  # 30 updates would end below the head


def test_the_size_is_lessened_only_as_far_as_need_be() -> None:
    assert size_within(224, 1000, 0.01, 20) == 224
    assert size_within(224, 1000, 0.01, 15) == 192  # 10 s at 224, 7.3 at 192, 7.5 allowed
    assert size_within(224, 1000, 0.01, 0.1) == 96
