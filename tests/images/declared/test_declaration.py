"""A declaration for another size keeps the share of the crop."""

from __future__ import annotations

import pytest

from calibrant.errors import DataError
from calibrant.images.declared.declaration import Declared, three
from calibrant.images.preprocessing import Preprocessing


def test_another_size_keeps_the_share_and_says_so() -> None:
    declared = Declared(Preprocessing((224, 224), 256), source="file").with_size((112, 112))
    assert declared.preprocessing.size == (112, 112)
    assert declared.preprocessing.resize == 128
    assert "made for 224 x 224" in declared.guesses[0]
    assert not declared.guessed


def test_one_number_stands_for_three() -> None:
    assert three(0.5, "mean", "f") == (0.5, 0.5, 0.5)
    assert three([1, 2, 3], "mean", "f") == (1.0, 2.0, 3.0)
    with pytest.raises(DataError, match="f: mean is .*, expected three numbers"):
        three([1, 2], "mean", "f")
