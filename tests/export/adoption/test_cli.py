"""`calibrant adopt` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calibrant.commands.root import cli
from calibrant.errors import CalibrantError

from .conftest import NAMES, Foreigners, Maker


def softmax(m: Maker) -> str:
    return m.put("Softmax", m.head(m.body()), axis=1)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(NAMES) + "\n")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["adopt", *map(str, arguments)], catch_exceptions=False)


def test_it_says_what_it_found_and_that_it_guessed(foreigners: Foreigners, names: Path) -> None:
    done = run(foreigners.write(softmax), "--classes", names, "--out", foreigners.adopted)
    assert done.exit_code == 0
    for part in ("probabilities, Softmax", "classifier 8 -> 5", "winners equal", "GUESS: nobody said"):
        assert part in done.output


def test_json(foreigners: Foreigners, names: Path) -> None:
    done = run(foreigners.write(softmax), "--classes", names, "--out", foreigners.adopted, "--mean", "0.5", "--std",
               "0.5", "--colour", "bgr", "--json")  # fmt: skip
    found = json.loads(done.output)
    assert found["proof"]["passed"]
    assert found["card"]["adopted"]["colour"] == "BGR"
    assert found["card"]["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert not any("GUESS" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--size", "big"], '"big" is no size; like 224'),
        (["--mean", "1,2"], "is not three numbers"),
        (["--fix-preprocess"], "needs labelled pictures"),
        (["--output", "logit"], 'has no output "logit"'),
        (["--preprocess", "nothing.json"], "nothing.json: no such file"),
        (["--data", "nowhere"], "nowhere: no such file or folder"),
    ],
)
def test_mistakes_are_one_line(options: list[str], told: str, foreigners: Foreigners, names: Path) -> None:
    with pytest.raises(CalibrantError) as error:
        run(foreigners.write(softmax), "--classes", names, "--out", foreigners.adopted, *options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert not foreigners.adopted.exists()


def test_names_are_a_line_each(foreigners: Foreigners, tmp_path: Path) -> None:
    (tmp_path / "twice.txt").write_text("a\na\n")
    with pytest.raises(CalibrantError, match="2 class names with 1 different"):
        run(foreigners.write(softmax), "--classes", tmp_path / "twice.txt", "--out", foreigners.adopted)
