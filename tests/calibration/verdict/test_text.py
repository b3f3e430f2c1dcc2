from types import SimpleNamespace

from calibrant.calibration.verdict.text import verdict_lines, verdicts
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
    assert "2.\n       and 2 more, see --json" in verdict_lines(Verdict("care", "s", causes))


def test_without_a_remedy_it_says_so():
    lines = verdict_lines(Verdict("care", "s", (Cause("class", "c", {"name": "jay"}),))).splitlines()
    assert lines[-1] == (
        '  do   No calibrator is known to mend it on these rows: let a person check its answers "jay".'
    )
    assert verdict_lines(Verdict("trusted", "s")) == "s"


def test_what_is_used_comes_first_and_what_stands_beside_it_in_one_line():
    bad, good = Verdict("care", "Bad.", (Cause("class", "c"),)), Verdict("trusted", "Good.")
    plain, through = (
        SimpleNamespace(name=name, verdict=v, reference=r) for name, v, r in (("a", bad, True), ("a, c", good, False))
    )
    assert verdicts([plain, through]) == "a, c: Good.\na: Bad."
