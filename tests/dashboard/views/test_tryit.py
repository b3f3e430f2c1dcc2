"""A deployed file as it is and with other knobs, side by side."""

from __future__ import annotations

from pathlib import Path

from .conftest import Page, metric, words

SAME, OTHER = "Mean confidence, as deployed", "Mean confidence, your settings"


def share(text: str) -> float:
    return float(text.split()[0])


def test_untouched_knobs_change_nothing(page: Page, folder: Path) -> None:
    drawn = page("try", folder)
    assert metric(drawn, SAME) == metric(drawn, OTHER)
    assert metric(drawn, "Pictures whose answer changes") == "0 of 3"


def test_a_higher_temperature_is_less_sure_and_a_lower_one_surer(page: Page, folder: Path) -> None:
    hot, cold = page("try", folder, t="4"), page("try", folder, t="0.5")
    assert metric(hot, SAME) == metric(cold, SAME)
    assert share(metric(hot, OTHER)) < share(metric(hot, SAME)) < share(metric(cold, OTHER))


def test_below_the_threshold_the_answer_is_that_it_does_not_know(page: Page, folder: Path) -> None:
    assert words(page("try", folder, abstain="100")).count("Your settings: **I don't know.** Best guess:") == 3
    assert words(page("try", folder, abstain="0")).count("Your settings: **I don't know.** Best guess:") == 0


def test_pictures_on_which_nothing_can_be_seen_are_warned_of(page: Page, folder: Path) -> None:
    drawn = page("try", folder)  # the pictures of that folder are of one colour each
    assert [w.value.count("**Do not rely on this answer.** There is nothing") for w in drawn.warning] == [1, 1, 1]


def test_without_a_file_it_says_how_to_make_one(page: Page, tmp_path: Path) -> None:
    assert page("try", tmp_path).code[0].value.startswith("calibrant export ")
