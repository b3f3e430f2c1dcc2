import json

import pytest

from calibrant.calibration.verdict.verdict import LEVELS, Cause, Remedy, Verdict

VERDICT = Verdict(
    "care",
    "Usable with care.",
    (Cause("class", "Of crane.", {"gap": 0.2}),),
    (Remedy("labels", None, "More.", {"rows": 780}),),
)


def test_it_is_json_of_the_promised_keys():
    assert VERDICT.to_dict() == {
        "level": "care",
        "sentence": "Usable with care.",
        "causes": [{"kind": "class", "text": "Of crane.", "evidence": {"gap": 0.2}}],
        "remedies": [{"kind": "labels", "command": None, "text": "More.", "gives": {"rows": 780}}],
    }


def test_it_comes_back_from_json():
    assert Verdict.from_dict(json.loads(json.dumps(VERDICT.to_dict()))) == VERDICT


@pytest.mark.parametrize(
    ("asked", "met"), [("not-trusted", True), ("unknown", True), ("care", True), ("trusted", False)]
)
def test_not_trusted_is_worst_and_cannot_be_told_comes_next(asked, met):
    assert LEVELS == ("not-trusted", "unknown", "care", "trusted")
    assert VERDICT.at_least(asked) is met


@pytest.mark.parametrize(
    ("level", "causes", "said"),
    [
        ("trusted", (), "Nothing: use it."),
        ("care", (Cause("ranking", ""),), "Check the labels"),
        ("care", (Cause("prior-shift", ""),), "Judge it on rows that have the class shares"),
        ("care", (Cause("group", "", {"name": "rare"}),), 'let a person check its answers of the group "rare".'),
        ("not-trusted", (Cause("over-confident", ""),), "let a person check its answers."),
    ],
)
def test_where_nothing_helps_the_first_cause_says_what_to_do(level, causes, said):
    assert said in Verdict(level, "", causes).without_remedy
