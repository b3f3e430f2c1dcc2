"""One grammar for class priors, and one set of refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.errors import CalibrantError
from calibrant.priors import ByName, read_prior, read_target, written

NAMES = ("crane", "gull", "a=b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("uniform", [1 / 3, 1 / 3, 1 / 3]),
        (" train ", [0.5, 0.3, 0.2]),
        ("0.2,0.5,0.3", [0.2, 0.5, 0.3]),
        ("2, 5, 3", [0.2, 0.5, 0.3]),
        ("[2, 5, 3]", [0.2, 0.5, 0.3]),
        ((2, 5, 3), [0.2, 0.5, 0.3]),
        (np.float32([0.2, 0.5, 0.3]), [0.2, 0.5, 0.3]),
        ("gull=0.5,a=b=0.3,crane=0.2", [0.2, 0.5, 0.3]),
        ("crane=4, *=1", [4 / 6, 1 / 6, 1 / 6]),
        ({"crane": 2, "gull": 5, "a=b": 3}, [0.2, 0.5, 0.3]),
        ('{"crane": 2, "gull": 5, "a=b": 3}', [0.2, 0.5, 0.3]),
        ("1,1,0", [0.5, 0.5, 0.0]),
        ("0.333,0.333,0.333", [1 / 3, 1 / 3, 1 / 3]),  # rounded shares
    ],
)
def test_every_way_of_writing_a_prior(value: Any, expected: list[float]) -> None:
    np.testing.assert_allclose(read_prior(value, NAMES, train=[5, 3, 2]), expected, atol=1e-7)


@pytest.mark.parametrize("prefix", ["", "shares:"])
def test_files_of_shares(tmp_path: Path, prefix: str) -> None:
    table = {"gull": 5, "crane": 2, "a=b": 3}
    (tmp_path / "p.json").write_text(json.dumps(table))
    (tmp_path / "l.json").write_text("[2, 5, 3]")
    (tmp_path / "p.csv").write_text("class,share\n" + "".join(f"{k},{v}\n" for k, v in table.items()))
    (tmp_path / "bare.csv").write_text("".join(f"{k},{v}\n" for k, v in table.items()))
    labels = np.array([0, 0, 1, 1, 1, 1, 1, 2, 2, 2, -1])
    data = Predictions(tuple(map(str, range(11))), labels, np.zeros((11, 3), np.float32), Source(NAMES))
    data.write(tmp_path / "seen.parquet")
    for name in ("p.json", "l.json", "p.csv", "bare.csv", "seen.parquet"):
        np.testing.assert_allclose(read_prior(f"{prefix}{tmp_path / name}", NAMES), [0.2, 0.5, 0.3])


def test_shares_that_were_rounded_to_two_digits_still_add_up() -> None:
    np.testing.assert_allclose(read_prior("0.33,0.33,0.33", NAMES), [1 / 3] * 3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("unifrom", 'did you mean "uniform"'),
        ("0.2;0.8", "is not a prior"),
        ("", "is not a prior"),
        ("0.2,0.8", "2 shares for 3 classes"),
        ("0.2,0.2,0.2", "add up to 0.6, not to 1"),
        ("0.3,0.3,0.35", "add up to 0.95, not to 1"),
        ("crane=0.5,gul=0.5,a=b=0", 'no class "gul".*did you mean "gull"'),
        ("crane=0.5,gull=0.5", 'class "a=b" has no share'),
        ("crane=1,crane=1,*=1", "given twice"),
        ("-1,1,1", "not negative"),
        ("nan,1,1", "finite"),
        ("0,0,0", "all 0"),
        ([1, None, 1], "must be numbers"),
        (3, "must be a list"),
        ("train", "training prior is not known"),
        ("shares:nowhere.json", "nowhere.json: cannot be read"),
        ("nowhere.parquet", "nowhere.parquet: no such"),
    ],
)
def test_what_is_no_prior_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(CalibrantError, match=message) as caught:
        read_prior(value, NAMES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.json", "{", "not JSON"), ("p.json", "3", "neither a list"),
        ("p.json", '{"gul": 1}', 'did you mean "gull"'),
        ("p.json", "[1, 2]", "2 shares for 3"), ("p.csv", "crane\n", "1 fields"),
        ("p.csv", "crane,x\ngull,y\n", "numbers"),
    ],
)  # fmt: skip
def test_errors_of_a_file_name_the_file(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CalibrantError, match=message) as caught:
        read_prior(str(tmp_path / name), NAMES)
    assert str(caught.value).startswith(str(tmp_path / name))


def test_a_request_cannot_name_a_file(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("[1, 1, 1]")
    with pytest.raises(CalibrantError, match="is not a prior"):
        written(str(tmp_path / "p.json"), files=False)
    assert written("crane=1,gull=2", files=False) == ByName((("crane", 1.0), ("gull", 2.0)))


def test_files_store_the_uniform_prior_as_none() -> None:
    assert read_target("uniform", NAMES) is None
    np.testing.assert_allclose(read_target("1,1,1", NAMES), 1 / 3)
