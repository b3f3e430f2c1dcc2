"""What somebody declares about pictures, and flags that win over it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrant.errors import ConfigError, DataError, FormatError
from calibrant.export.adoption.preprocess.declared import Flags, read_declared


def test_without_a_word_it_is_a_guess_of_0_to_1(tmp_path: Path) -> None:
    declared = read_declared(None, (32, 48))
    p = declared.preprocessing
    assert (p.size, p.crop, p.mean, p.std) == ((32, 48), "squash", (0, 0, 0), (1, 1, 1))
    assert declared.guessed
    assert len(declared.guesses) == 3


def test_flags_make_it_no_guess() -> None:
    declared = Flags(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).applied(read_declared(None, (32, 32)))
    assert not declared.guessed
    assert declared.preprocessing.mean == (0.5, 0.5, 0.5)


def test_levels_of_0_to_255_are_divided() -> None:
    flags = Flags(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), scale="0-255", colour="BGR")
    declared = flags.applied(read_declared(None, (32, 32)))
    assert declared.preprocessing.mean == pytest.approx((0.485, 0.456, 0.406))
    assert declared.preprocessing.std == pytest.approx((0.229, 0.224, 0.225))
    assert declared.bgr


def test_scale_alone_means_no_mean_and_std() -> None:
    assert Flags(scale="0-255").applied(read_declared(None, (8, 8))).preprocessing.std == pytest.approx((1 / 255,) * 3)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (Flags(mean=(120, 120, 120), std=(50, 50, 50)), "look like levels of 0..255; say so: --scale 0-255"),
        (Flags(mean=(0.5, 0.5, 0.5)), "--mean and --std go together"),
        (Flags(crop="centre"), 'unknown crop "centre"; did you mean "center"'),
        (Flags(interpolation="bicubik"), 'did you mean "bicubic"'),
        (Flags(colour="rbg"), "rgb or bgr"),
        (Flags(scale="0-100"), "0-1 or 0-255"),
    ],
)
def test_flags_that_mean_nothing(flags: Flags, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace(".", r"\.")):
        flags.applied(read_declared(None, (32, 32)))


def test_files_are_known_by_their_keys(tmp_path: Path) -> None:
    ours = tmp_path / "ours.json"
    ours.write_text(json.dumps({"size": [8, 9], "resize": 10, "crop": "center", "interpolation": "box",
                                "mean": [0, 0, 0], "std": [1, 1, 1]}))  # fmt: skip
    assert read_declared(str(ours), None).preprocessing.size == (8, 9)
    timm = tmp_path / "config.json"
    block = {"input_size": [3, 64, 64], "crop_pct": 0.5, "interpolation": "bilinear", "crop_mode": "center",
             "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5]}  # fmt: skip
    timm.write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": block}))
    assert read_declared(str(timm), None).preprocessing.resize == 128


def test_what_is_no_preprocessing_says_what_it_would_be(tmp_path: Path) -> None:
    other = tmp_path / "x.json"
    other.write_text('{"hidden_size": 3}')
    with pytest.raises(DataError, match="no preprocessor_config.json of Hugging Face"):
        read_declared(str(other), None)
    with pytest.raises(DataError, match="no such file"):
        read_declared(str(tmp_path / "missing.json"), None)
    with pytest.raises(ConfigError, match='did you mean "timm:"'):
        read_declared("tim:resnet18", None)
    other.write_text('{"size": [0, 1], "resize": 1, "crop": "center"}')
    with pytest.raises(FormatError, match="damaged preprocessing"):
        read_declared(str(other), None)


def test_another_size_crops_the_same_share() -> None:
    """Resized to 256 and cropped to 224 is 8/7; a graph of 112 pixels resizes to 128."""
    declared = Flags(resize=256, crop="center").applied(read_declared(None, (224, 224))).with_size((112, 112))
    assert declared.preprocessing.resize == 128
    assert "the graph takes 112 x 112" in declared.guesses[-1]
