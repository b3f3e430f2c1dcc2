from __future__ import annotations

import pytest

from calibrant.dashboard.widgets.markdown_escape import plain, short


def test_every_punctuation_character_is_taken_as_itself() -> None:
    assert plain("a*b_c`d") == r"a\*b\_c\`d"
    assert plain("<b>[x](y)") == r"\<b\>\[x\]\(y\)"
    assert plain("$x$ :red[y] #1") == r"\$x\$ \:red\[y\] \#1"


def test_letters_digits_and_other_scripts_stay() -> None:
    assert plain("leaf 07 élève 葉") == "leaf 07 élève 葉"


def test_a_name_cannot_start_a_new_paragraph() -> None:
    assert plain("a\n\n# heading") == r"a \# heading"


@pytest.mark.parametrize(
    "text", ["http://evil.example/a", "HTTPS://evil.example", "www.evil.example", "me@evil.example"]
)
def test_bare_addresses_are_broken_so_that_they_do_not_become_links(text: str) -> None:
    shown = plain(text).replace("\\", "")
    assert "\u2060" in shown
    assert shown.replace("\u2060", "") == text


def test_a_name_that_runs_from_right_to_left_keeps_to_itself() -> None:
    assert plain("ورد") == "\u2068ورد\u2069"
    assert plain("rose") == "rose"


def test_short_keeps_both_ends() -> None:
    assert short("abcdefghij", 5) == "ab…ij"
    assert short("abcde", 5) == "abcde"
