"""NumPy archives of pixels and of encoded images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.layouts import layout_of, list_images


def pixels(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 8, 6, 3)).astype(np.uint8)


def test_arrays_of_pixels_as_keras_has_them(tmp_path: Path) -> None:
    x, file = pixels(4), tmp_path / "set.npz"
    np.savez(file, x_train=x[:3], y_train=np.array([[1], [0], [1]]), x_test=x[3:], y_test=np.array([0]))
    assert layout_of(file) == "npz"
    found = list_images(file)
    assert found.class_names == ("0", "1")
    assert found.sets["train"].labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(np.asarray(found.sets["test"].image(0)), x[3])


def test_grey_pixels_become_rgb(tmp_path: Path) -> None:
    grey = pixels(2)[..., 0]
    np.savez(tmp_path / "grey.npz", x_train=grey, y_train=[0, 1])
    image = np.asarray(list_images(tmp_path / "grey.npz").sets["train"].image(1))
    np.testing.assert_array_equal(image, np.stack([grey[1]] * 3, axis=-1))


def encoded(x: np.ndarray) -> list[bytes]:
    files = []
    for image in x:
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "PNG")
        files.append(stream.getvalue())
    return files


def test_encoded_images_behind_one_another_with_their_common_header(tmp_path: Path) -> None:
    x = pixels(3)
    files = encoded(x)
    rest = [file[8:] for file in files]  # a PNG begins with eight bytes that all have
    np.savez(
        tmp_path / "set.npz", jpeg_header=np.frombuffer(files[0][:8], np.uint8), classes=["ape", "bee"],
        train_bytes=np.frombuffer(b"".join(rest), np.uint8), train_offsets=np.cumsum([0, *map(len, rest)]),
        y_train=np.array([1, 0, 1], np.uint8),
    )  # fmt: skip
    images = list_images(tmp_path / "set.npz").sets["train"]
    assert list_images(tmp_path / "set.npz").class_names == ("ape", "bee")
    for i in range(3):
        np.testing.assert_array_equal(np.asarray(images.image(i)), x[i])


@pytest.mark.parametrize(("arrays", "said"), [
    ({"x_train": pixels(2).astype(np.float32), "y_train": [0, 1]}, "not .N, H, W, 3. of bytes"),
    ({"x_train": pixels(2), "y_train": [0, 1, 0]}, "one for each"),
    ({"x_train": pixels(2), "y_train": [0.5, 1.0]}, "numbers of classes"),
    ({"x_train": pixels(2), "y_train": [0, 2], "classes": ["a", "b"]}, "run to 2 but there are 2"),
    ({"train_bytes": np.zeros(3, np.uint8), "train_offsets": [0, 2, 9], "y_train": [0, 1]}, "ends before"),
    ({"train_bytes": np.zeros(3, np.uint8), "train_offsets": [0, 3], "y_train": [0, 1]}, "do not divide"),
])  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, object], said: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=said):
        list_images(tmp_path / "set.npz")


def test_other_archives_are_no_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "logits.npz", logits=np.zeros((2, 2)), labels=[0, 1])
    with pytest.raises(DataError, match="is neither"):
        layout_of(tmp_path / "logits.npz")
