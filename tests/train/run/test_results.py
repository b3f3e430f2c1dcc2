"""What a run leaves behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from calibrant.artifacts.predictions import read_predictions
from calibrant.errors import ConfigError, DataError
from calibrant.train import TrainConfig, fit

Small = Callable[..., TrainConfig]


def test_an_unreadable_image_stops_or_is_left_out_and_listed(small: Small, image_folder: Path, tmp_path: Path) -> None:
    root = shutil.copytree(image_folder, tmp_path / "torn")
    for name in ("train/red/003.png", "val/blue/001.png", "test/green/002.png"):
        (root / name).write_bytes(b"not an image")
    for cache in ("on", "off"):
        config = small(f"data.path={root}", f"data.cache={cache}", "data.workers=0", "schedule.epochs=1")
        with pytest.raises(DataError, match=r"(train/red/003|val/blue/001)\.png: not a JPEG"):
            fit(config, overwrite=True)
        run = fit(
            replace(
                config, data=replace(config.data, on_bad_image="skip"), engine=replace(config.engine, drop_last=False)
            ),
            overwrite=True,
        )
        listed = [line.split("\t")[0] for line in (run / "bad-images.txt").read_text().splitlines()]
        assert listed == ["test/green/002.png", "train/red/003.png", "val/blue/001.png"]
        assert len(read_predictions(run / "predictions" / "val.parquet")) == 14


def test_a_run_is_not_overwritten_unless_asked(small: Small) -> None:
    config = small("schedule.epochs=1")
    fit(config)
    with pytest.raises(ConfigError, match="holds a run already"):
        fit(config)
    fit(config, overwrite=True)
