import json

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration.cli.labels import labels
from calibrant.errors import ConfigError


@pytest.fixture
def served(tmp_path):
    """Two classes, claims of .8, no labels."""
    z = np.tile(np.float32([np.log(4), 0]), (50, 1))
    path = tmp_path / "served.parquet"
    Predictions(tuple(map(str, range(50))), np.full(50, -1), z, Source(("auk", "crane"))).write(path)
    return path


def asked(*arguments):
    return CliRunner().invoke(labels, [str(a) for a in arguments], catch_exceptions=False)


def test_the_rows_are_those_of_the_formula(served):
    told = json.loads(asked(served, "--width", "0.1", "--error", "0.1", "--json").stdout)
    # (2 * 1.96 / .1)^2 * .8 * .2 = 245.9; of one bin at error .1: sqrt(n) * .1 = 1.2816 sqrt(.7 * .3) + noise at 0
    assert told["to_know"] == [{"width": 0.1, "rows": 246}]
    assert told["to_see"][0]["error"] == 0.1
    assert 100 < told["to_see"][0]["rows"] < 200
    assert (told["rows"], told["labelled"], told["to_judge"]["margin"]) == (50, 0, 0.05)


def test_it_is_said_in_words_and_more_is_asked_where_more_is_at_stake(served):
    said = asked(served, "--stakes", "high").stdout
    assert "tell an error of 4 points from one of 2" in said
    assert "served.parquet has 0 labelled rows of 50." in said
    rows = [int(asked(served, "--stakes", s).stdout.split()[0].replace(",", "")) for s in ("low", "high")]
    assert rows[0] < rows[1] / 10


def test_an_error_that_is_no_share_is_refused(served):
    with pytest.raises(ConfigError):
        asked(served, "--error", "5")
