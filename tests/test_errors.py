"""Messages say what, where and how to mend it."""

from __future__ import annotations

from calibrant.errors import CheckFailed, DataError, MissingExtra, did_you_mean


def test_a_message_names_place_and_remedy_in_one_line() -> None:
    assert str(DataError("is empty", where="birds/train", fix="add images")) == "birds/train: is empty; add images"
    assert str(DataError("is empty")) == "is empty"


def test_exit_codes_tell_a_failed_check_from_a_mistake() -> None:
    assert DataError("x").exit_code == 2
    assert CheckFailed("x").exit_code == 1


def test_did_you_mean_names_the_nearest_or_lists_all() -> None:
    assert did_you_mean("vase", ["vace", "ce", "ls"]) == 'did you mean "vace"?'
    assert did_you_mean("zzz", ["b", "a"]) == "known are: a, b"


def test_a_missing_extra_gives_the_line_to_type() -> None:
    assert "pip install 'calibrant[train]'" in str(MissingExtra("calibrant train", "train", "torch"))
