"""Pictures in every form a caller has them are the same pictures."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.serve import load
from calibrant.serve.engine.forms import listed, picture

RNG = np.random.default_rng(0)
ONE = RNG.integers(0, 256, (5, 7, 3)).astype(np.uint8)
MANY = RNG.integers(0, 256, (4, 5, 7, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    "given",
    [
        MANY, MANY.transpose(0, 3, 1, 2), MANY.astype(np.int64), MANY / 255, (MANY / 255).astype(np.float32),
        MANY.astype(np.float32), np.concatenate([MANY, MANY[..., :1]], axis=3),
    ],
)  # fmt: skip
def test_a_stack_of_any_type_and_layout_is_the_same_stack(given: np.ndarray) -> None:
    np.testing.assert_array_equal(listed(given), MANY)


def test_tensors_are_stacks_too() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(listed(torch.from_numpy(MANY).permute(0, 3, 1, 2) / 255), MANY)
    np.testing.assert_array_equal(picture(torch.from_numpy(ONE)), ONE)
    half = torch.zeros(1, 3, 4, 6, dtype=torch.bfloat16)
    assert listed(half).shape == (1, 4, 6, 3)


def test_grey_pictures_get_three_equal_colours() -> None:
    grey = MANY[..., 0]
    for given in (grey[..., None], grey[:, None], grey[0]):
        found = listed(given)
        np.testing.assert_array_equal(found[0], np.repeat(grey[0][..., None], 3, axis=2))
    np.testing.assert_array_equal(listed(grey[0] > 99)[0, ..., 1], (grey[0] > 99) * 255)


def test_one_picture_is_a_stack_of_one() -> None:
    np.testing.assert_array_equal(listed(ONE), ONE[None])
    np.testing.assert_array_equal(listed(ONE.transpose(2, 0, 1)), ONE[None])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (MANY / 127.5 - 1, "no pixels; .*normalises them itself"),
        (MANY.astype(np.int32) * 2, "are no pixels"),
        (MANY[..., 0], "may be one picture or many"),
        (np.zeros((2, 5, 6, 7), np.uint8), "no axis of 1, 3 or 4 colours"),
        (np.zeros(3, np.uint8), "is no picture"),
        (MANY.astype(complex), "array of complex128"),
        (None, "got NoneType"),
        (3.5, "got float"),
    ],
)
def test_what_is_no_picture_is_refused(given: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        listed(given)


def test_folders_and_patterns_are_their_pictures(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    for name, label in (("a.png", "x"), ("b.png", "x"), ("c.png", "y")):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.fromarray(ONE if name == "a.png" else ONE[::-1]).save(tmp_path / label / name)
    files = [tmp_path / "x" / "a.png", tmp_path / "x" / "b.png", tmp_path / "y" / "c.png"]
    assert listed(tmp_path) == files
    assert listed(str(tmp_path / "*" / "*.png")) == files
    assert listed(np.array([str(f) for f in files])) == files
    assert listed([tmp_path / "x", str(files[2])]) == files
    with pytest.raises(DataError, match="no file is called like that"):
        listed(str(tmp_path / "*.jpg"))
    classifier = load(model_file, threads=1)
    result = classifier.predict(tmp_path)
    assert result.ids == tuple(map(str, files))
    pixels = np.stack([tiny.PREPROCESSING.pixels(Image.open(f)) for f in files])
    np.testing.assert_allclose(result.probabilities, tiny.expected(pixels), atol=1e-6)


def test_more_pictures_than_are_decoded_at_a_time_give_the_same_answers(
    model_file: Path, tiny: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.serve.engine import classifier as room

    classifier, pixels = load(model_file, threads=1), tiny.pictures(11)
    monkeypatch.setattr(room, "_AT_A_TIME", 4)
    np.testing.assert_allclose(classifier.predict(pixels).probabilities, tiny.expected(pixels), atol=1e-6)
