"""The small world that the pages of the docs take for granted: pictures, a run, its predictions, a deployed file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Run = Callable[..., None]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, by commands; each page walks in a copy."""
    pytest.importorskip("timm")
    pytest.importorskip("sklearn")
    from safetensors.torch import save_file

    from calibrant.train import load_run
    from calibrant.train.data.digits import DigitSpec, write_digits

    place = tmp_path_factory.mktemp("world")
    birds = write_digits(place / "birds", DigitSpec(imbalance=2.0))
    for folder in birds.glob("*/*"):
        if int(folder.name) > 4:
            shutil.rmtree(folder)
        else:
            for file in sorted(folder.iterdir())[16:]:
                file.unlink()
    for name in ("images", "photos", "leaves", "cub100"):
        shutil.copytree(birds, place / name)
    shutil.copytree(birds / "test", place / "june")
    for name in ("insects", "svhn"):  # the same pictures under names that no model knows
        for folder in (birds / "test").iterdir():
            shutil.copytree(folder, place / name / "test" / f"{name} {folder.name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for line in (
            "train --data birds --model test_resnet --image-size 32 --epochs 1 --out runs/birds",
            "calibrate runs/birds",
            "export runs/birds --calibrator runs/birds/calibrator.json --out birds.onnx",
        ):
            command(line.split())
    save_file(load_run(place / "runs/birds").network.network.state_dict(), place / "pretrained.safetensors")
    for name in ("model", "old", "new", "small"):
        shutil.copy(place / "birds.onnx", place / f"{name}.onnx")
    for name in ("ce", "vace", "first"):
        shutil.copytree(place / "runs/birds", place / "runs" / name)
    for split in ("val", "test"):
        shutil.copy(place / f"runs/birds/predictions/{split}.parquet", place / f"{split}.parquet")
    for name in ("calibrator", "new-calibrator"):
        shutil.copy(place / "runs/birds/calibrator.json", place / f"{name}.json")
    return place


@pytest.fixture(autouse=True)
def _no_plugin_stays() -> Iterator[None]:
    """A page's plugin would be loaded by every process that a later test starts."""
    from calibrant import plugins

    before = plugins.sources()
    yield
    for source in set(plugins.sources()) - set(before):
        plugins.forget(source)


def command(words: list[str], *, ends: int = 0) -> None:
    """One of ours, in this process."""
    from calibrant.commands.root import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["calibrant", *words])
        code: object = 0
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        if cores is not None:  # bench-serve --pin moves its process, which is this one
            os.sched_setaffinity(0, cores)
    assert code == ends, f"calibrant {' '.join(words)} ended with {code}"
