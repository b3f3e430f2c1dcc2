"""The token pictures that training leaves behind for the dashboard."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.train.config import TrainConfig
from calibrant.train.engine import fit
from calibrant.train.vit.gallery import _choose

Small = Callable[..., TrainConfig]


def reduced(small: Small, method: str, **more: Any) -> TrainConfig:
    reduction = {"method": method, "keep_rate": 0.5, "locations": [1, 2], **more}
    options = {"depth": 4, "embed_dim": 48, "num_heads": 3}
    model = {"image_size": 64, "token_reduction": reduction, "options": options}
    return small("model.name=vit_tiny_patch16_224", "schedule.epochs=1", model=model)


@pytest.mark.parametrize(("method", "merged"), [("evit", False), ("tome", True)])
def test_training_a_reduced_network_leaves_a_picture_of_each_image(small: Small, method: str, merged: bool) -> None:
    run = fit(reduced(small, method))
    index = json.loads((run / "tokens" / "tokens.json").read_text())
    assert (index["method"], index["merged"], index["blocks"], index["grid"]) == (method, merged, [1, 2], [4, 4])
    test = read_predictions(run / "predictions" / "test.parquet")
    assert index["split"] == "test"
    assert len(index["pictures"]) == 12
    for picture in index["pictures"]:
        row = list(test.ids).index(picture["id"])
        assert picture["label"] == test.labels[row]
        z = test.logits[row].astype(np.float64)
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        assert picture["predicted"] == p.argmax()
        assert picture["confidence"] == pytest.approx(float(p.max()), abs=1e-5)
        assert 16 > picture["tokens"][0] > picture["tokens"][1] > 0
        with Image.open(run / "tokens" / picture["file"]) as strip:
            assert strip.size == (3 * 128 + 2 * 4, 128)  # 64 pixels enlarged twice, three panels
    assert len({p["label"] for p in index["pictures"]}) == 3


def test_a_new_run_in_the_place_of_a_reduced_one_keeps_no_picture_of_it(small: Small) -> None:
    run = fit(reduced(small, "evit"))
    assert list((run / "tokens").iterdir())
    fit(small("schedule.epochs=1"), overwrite=True)
    assert not (run / "tokens").exists() or list((run / "tokens").iterdir()) == []


def test_images_are_of_as_many_classes_as_there_are_and_always_the_same() -> None:
    labels = np.repeat(np.arange(9), 50)
    chosen = _choose(labels)
    assert len(chosen) == 12
    assert set(labels[chosen]) == set(range(9))
    assert chosen.tolist() == _choose(labels).tolist()
    assert _choose(np.array([1, 1])).tolist() == [0, 1]
