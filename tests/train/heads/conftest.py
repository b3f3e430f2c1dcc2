"""A long-tailed toy set of Gaussian features, in memory and as a feature cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from calibrant.train.heads.features.cache import FeatureCache, Manifest, write_manifest, write_shard

CLASSES, WIDTH = 6, 12
COUNTS = (40, 24, 14, 8, 5, 3)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def toy_rows(counts: tuple[int, ...], seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    centres = np.random.default_rng(0).normal(size=(len(counts), WIDTH))
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    return (centres[y] + 0.9 * rng.normal(size=(len(y), WIDTH))).astype(np.float32), y


@pytest.fixture
def toy() -> tuple[Tensor, Tensor]:
    x, y = toy_rows(COUNTS, seed=1)
    return torch.from_numpy(x), torch.from_numpy(y)


def write_cache(path: Path, *, views: tuple[str, ...] = ("eval",), block: int = 50) -> FeatureCache:
    """train 20 a class, test 30 a class; a view other than eval is a little noise on top."""
    splits = {"train": toy_rows((20,) * CLASSES, 2), "test": toy_rows((30,) * CLASSES, 3)}
    manifest = Manifest(
        {"name": "toy", "options": {}, "sha256": "0" * 64, "weights": None},
        {"size": [8, 8], "resize": 8, "crop": "center", "interpolation": "bicubic", "mean": [0.5] * 3,
         "std": [0.5] * 3},
        "head", WIDTH, 1, "float32", "none", 0, block, tuple("abcdef"), {k: len(v[1]) for k, v in splits.items()},
        {k: "x" for k in splits}, views,
    )  # fmt: skip
    path.mkdir(parents=True, exist_ok=True)
    write_manifest(path, manifest)
    cache = FeatureCache(path, manifest)
    for split, (x, y) in splits.items():
        for v, view in enumerate(views):
            moved = x + np.float32(0.1 * v) * np.random.default_rng(v).normal(size=x.shape).astype(np.float32)
            for i in range(cache.shards(split)):
                rows = slice(i * block, (i + 1) * block)
                ids = [f"{split}/{j}" for j in range(len(y))[rows]]
                write_shard(cache.shard(split, view, i), ids, y[rows], moved[rows], "float32")
    return cache


@pytest.fixture
def cache(tmp_path: Path) -> FeatureCache:
    return write_cache(tmp_path / "feats", views=("eval", "flip"))


SIZE = 32  # pixels of the small network


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for split, count in (("train", 5), ("test", 3)):
        for k in range(2):
            folder = root / split / f"class{k}"
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 255, (40, 52, 3), dtype=np.uint8)
                Image.fromarray(pixels).resize((60, 48)).save(folder / f"{i}.png")
    return root


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "vit.safetensors"
    save_file(timm.create_model("test_vit", img_size=SIZE).state_dict(), file)
    return file
