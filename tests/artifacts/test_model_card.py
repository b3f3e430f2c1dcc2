"""The block of a deployed file: which ones are refused before anything in them is believed."""

from __future__ import annotations

import json

import pytest

from calibrant.artifacts.model_card import FORMAT_VERSION, ModelCard
from calibrant.errors import FormatError


def test_a_block_from_the_future_is_told_from_a_damaged_one() -> None:
    def read(version: int) -> None:
        ModelCard.from_json(json.dumps({"format_version": version}), where="m.onnx")

    with pytest.raises(FormatError, match=r"m\.onnx.* is newer than this Calibrant reads .*update calibrant"):
        read(FORMAT_VERSION + 1)
    with pytest.raises(FormatError, match="does not match its own hash"):
        read(FORMAT_VERSION)
