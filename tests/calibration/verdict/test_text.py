from calibrant.calibration.verdict.text import verdict_lines
from calibrant.calibration.verdict.verdict import Cause, Remedy, Verdict


def test_the_sentence_comes_first_then_why_and_what_to_do():
    verdict = Verdict(
        "care", "Usable with care.", (Cause("class", "Crane is off."),), (Remedy("labels", "calibrant x", "Label."),)
    )
    assert verdict_lines(verdict, "test") == (
        "test: Usable with care.\n  why  class: Crane is off.\n  do   Label.\n       calibrant x"
    )


def test_of_many_causes_the_first_three_are_shown():
    causes = tuple(Cause("class", f"{k}.") for k in range(5))
    assert verdict_lines(Verdict("care", "s", causes)).endswith("2.\n       and 2 more, see --json")
