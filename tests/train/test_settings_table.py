"""Flags land in their tables."""

from __future__ import annotations

from calibrant.train.settings_table import laid_over, nested


def test_flags_and_full_names_stand_in_their_tables() -> None:
    found = laid_over({"loss": "ce"}, {"epochs": 3, "augment.mixup": 0.2, "loss.smoothing": 0.1})
    assert found == {
        "loss": {"name": "ce", "smoothing": 0.1}, "schedule": {"epochs": 3}, "augment": {"mixup": 0.2},
    }  # fmt: skip


def test_another_loss_drops_the_options_of_the_first() -> None:
    assert laid_over({"loss": {"name": "vace", "lam": 1}}, {"loss": "ce"}) == {"loss": {"name": "ce"}}
    assert laid_over({"loss": {"name": "vace", "lam": 1}}, {"loss": "vace"}) == {"loss": {"name": "vace", "lam": 1}}


def test_a_copy_can_be_written_into() -> None:
    given = {"model": {"name": "a"}}
    laid_over(nested(given), {"model": "b"})
    assert given == {"model": {"name": "a"}}
