from types import SimpleNamespace

import pytest

from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.verdict.requirement import broken, read_requirements
from calibrant.calibration.verdict.verdict import Verdict
from calibrant.errors import ConfigError


def model(level, ece, *, reference=False):
    metrics = {"ece": Measured(ece, ece - 0.02, ece + 0.01), "nll": Measured(float("nan"))}
    return SimpleNamespace(
        name="m", verdict=Verdict(level, ""), evaluation=SimpleNamespace(metrics=metrics), reference=reference
    )


@pytest.mark.parametrize(
    ("rules", "level", "failures"),
    [
        ("ece<0.05", "unknown", 0), ("ece<0.03", "trusted", 1), ("ece<=4%", "trusted", 0), ("verdict>=care", "care", 0),
        ("verdict>=care", "unknown", 1), ("verdict>not-trusted", "unknown", 0), ("verdict=trusted", "trusted", 0),
        ("ece<0.03, verdict>=care", "not-trusted", 2), ("nll<9", "trusted", 1), ("top5_accuracy>0", "trusted", 1),
        ("ece.high<0.06", "trusted", 0), ("ece.high<0.05", "trusted", 1), ("ece.low>=2%", "trusted", 0),
    ],
)  # fmt: skip
def test_all_rules_must_hold_and_what_is_not_known_does_not(rules, level, failures):
    assert len(broken(read_requirements(rules), [model(level, 0.04)])) == failures


def test_a_broken_rule_says_what_was_found():
    assert broken(read_requirements("verdict>=care"), [model("unknown", 0.04)]) == [
        "m breaks verdict>=care: it is unknown"
    ]


def test_a_model_without_its_calibrator_is_only_shown_beside():
    assert broken(read_requirements("ece<0.01"), [model("care", 0.04, reference=True)]) == []


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("eec<0.05", 'did you mean "ece"'), ("verdict>=car", 'did you mean "care"'), ("ece<much", "no number"),
        ("ece", "no rule"), ("ece!0.1", "no rule"), (" ", "nothing"),
        ("ece.hihg<0.1", 'did you mean "high"'), ("verdict.low>care", "a verdict has none"), ("ece<5", "write ece<5%"),
        ("ece<nan", "no number"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_with_what_was_meant(rule, said):
    with pytest.raises(ConfigError, match=said):
        read_requirements(rule)
