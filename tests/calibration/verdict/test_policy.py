import pytest

from calibrant.calibration.verdict.policy import margin_of
from calibrant.errors import ConfigError


def test_the_more_is_at_stake_the_smaller_the_margin():
    assert margin_of() == margin_of("standard") == 0.05
    assert margin_of("low") > margin_of("standard") > margin_of("high")
    assert margin_of(margin=0.03) == 0.03


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "hihg"}, 'did you mean "high"'),
        ({"margin": 5}, "share"),
        ({"policy": "low", "margin": 0.1}, "one of"),
    ],
)
def test_what_is_no_margin_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        margin_of(**given)
