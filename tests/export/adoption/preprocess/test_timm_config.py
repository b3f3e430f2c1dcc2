from __future__ import annotations

from typing import Any

import pytest

from calibrant.errors import ConfigError, DataError
from calibrant.export.adoption.preprocess.timm_config import of_timm_config, of_timm_name

CONFIG = {
    "input_size": (3, 224, 224), "crop_pct": 0.9, "crop_mode": "center", "interpolation": "bicubic",
    "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6),
}  # fmt: skip


def test_the_shorter_side_is_floor_of_size_over_share() -> None:
    p = of_timm_config(CONFIG, "config.json").preprocessing
    assert (p.size, p.resize, p.crop, p.mean, p.std) == (
        (224, 224), 248, "center", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"crop_mode": "border"}, "pads the picture"),
        ({"interpolation": "random"}, '"random" is not known'),
        ({"mean": None}, "has no mean"),
    ],
)
def test_what_cannot_be_expressed(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        of_timm_config({**CONFIG, **changed}, "config.json")


def test_a_missing_crop_mode_is_a_guess() -> None:
    block = {k: v for k, v in CONFIG.items() if k != "crop_mode"}
    assert "crop_mode" in of_timm_config(block, "config.json").guesses[0]


def test_names_that_timm_knows() -> None:
    """timm's table: tf_efficientnet_lite0 is 224 pixels, 0.875, bicubic, mean and std 0.5."""
    declared = of_timm_name("tf_efficientnet_lite0.in1k")
    p = declared.preprocessing
    assert (p.size, p.resize, p.mean, p.std) == ((224, 224), 256, (0.5,) * 3, (0.5,) * 3)
    assert declared.source == "timm:tf_efficientnet_lite0.in1k"
    with pytest.raises(ConfigError, match='did you mean "resnet18"'):
        of_timm_name("resnett18")
