"""What was assumed is said as an assumption."""

from __future__ import annotations

from pathlib import Path

from calibrant.commands.fit.deploy import prior_in_words
from calibrant.commands.fit.plan import Wanted


def test_an_assumed_prior_is_told_from_a_wanted_one() -> None:
    assert prior_in_words(Wanted(Path("in"))).startswith("assumed")
    assert prior_in_words(Wanted(Path("in"), target_prior="uniform")) == "as you said: uniform"
