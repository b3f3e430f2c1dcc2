"""Pictures as callers have them: paths, folders, patterns, PIL pictures, encoded bytes, arrays and tensors.

An array is one picture or a stack of them: channels last or first, three, one (grey) or four (with transparency), whole
numbers 0..255, or floats 0..1 or 0..255. What it is must be plain: floats below zero have been normalised already, and
are refused, since the file does that itself.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError

Pixels = NDArray[np.uint8]
_PATTERN = frozenset("*?[")


def listed(images: Any) -> Pixels | list[Any]:
    """A stack uint8 [N, H, W, 3], or a list of single pictures."""
    if isinstance(images, str | Path):
        return _of_path(Path(images))
    if hasattr(images, "detach") or hasattr(images, "__array_interface__") or isinstance(images, np.ndarray):
        if getattr(images, "dtype", None) is not None and getattr(images.dtype, "kind", None) in ("O", "U", "S"):
            images = images.tolist()  # paths, or pictures of several sizes
        elif not _is_pil(images):
            return _stack(_array(images))
    if isinstance(images, bytes | bytearray | memoryview) or _is_pil(images):
        return [images]
    if not isinstance(images, Sequence) and not hasattr(images, "__iter__"):
        raise _refused(images)
    return [p for image in images for p in (_of_path(Path(image)) if isinstance(image, str | Path) else [image])]


def ids(images: Any) -> tuple[str, ...] | None:
    """Names of the pictures, where all have one."""
    if isinstance(images, list) and images and all(isinstance(image, Path) for image in images):
        return tuple(map(str, images))
    return None


def picture(image: Any) -> Pixels:
    """uint8 [h, w, 3] of one array or tensor."""
    if not hasattr(image, "detach") and not hasattr(image, "__array_interface__"):
        raise _refused(image)
    stack = _stack(_array(image))
    if len(stack) != 1:
        raise DataError(f"a list holds a stack of {len(stack)} pictures", where="images", fix="give the stack alone")
    return stack[0]  # type: ignore[no-any-return]


def _of_path(path: Path) -> list[Any]:
    if _PATTERN & set(str(path)) and not path.exists():
        found = sorted(glob.glob(str(path), recursive=True))
        if not found:
            raise DataError("no file is called like that", where=path)
        return [Path(f) for f in found]
    if not path.is_dir():
        return [path]
    from calibrant.images.layouts import list_images  # every layout's reader, which a server does without

    images = list_images(path).whole()
    files = images.files
    if files is not None and all(isinstance(f, Path) for f in files):
        return list(files)
    return [images.image(i) for i in range(len(images))]


def _is_pil(image: Any) -> bool:
    return hasattr(image, "getbands")


def _array(image: Any) -> NDArray[Any]:
    if hasattr(image, "detach"):  # torch, without importing it; bfloat16 has no numpy
        image = image.detach().cpu()
        image = image.float() if image.is_floating_point() else image
    return np.asarray(image)


def _stack(array: NDArray[Any]) -> Pixels:
    """[N, H, W, 3] of one picture or many."""
    whole = _bytes(array)
    if whole.ndim == 2:
        whole = whole[None, :, :, None]
    elif whole.ndim == 3:
        last, first = whole.shape[2] in (3, 4), whole.shape[0] in (1, 3)
        if not last and not first:
            raise DataError(
                f"an array of shape {list(array.shape)} may be one picture or many",
                where="images",
                fix="give [N, H, W, 3], or grey pictures as [N, H, W, 1]",
            )
        whole = whole[None]
    if whole.ndim != 4:
        raise DataError(f"an array of shape {list(array.shape)} is no picture", where="images", fix="give [N, H, W, 3]")
    if whole.shape[3] not in (1, 3, 4) and whole.shape[1] in (1, 3, 4):
        whole = whole.transpose(0, 2, 3, 1)
    channels = whole.shape[3]
    if channels not in (1, 3, 4):
        raise DataError(
            f"an array of shape {list(array.shape)} has no axis of 1, 3 or 4 colours",
            where="images",
            fix="give [N, H, W, 3] or [N, 3, H, W]",
        )
    if channels == 1:
        whole = np.repeat(whole, 3, axis=3)
    return np.ascontiguousarray(whole[..., :3])


def _bytes(array: NDArray[Any]) -> Pixels:
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    if array.dtype.kind not in "iuf":
        raise DataError(f"expected uint8 pictures, got an array of {array.dtype}", where="images")
    if not array.size:
        return array.astype(np.uint8)
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 255):
        raise DataError(
            f"values from {low:.3g} to {high:.3g} are no pixels",
            where="images",
            fix="hand over pixels of 0..255, or of 0..1; the file normalises them itself",
        )
    scale = 255.0 if array.dtype.kind == "f" and high <= 1 else 1.0
    return np.rint(array.astype(np.float64) * scale).astype(np.uint8)


def _refused(image: Any) -> DataError:
    return DataError(
        f"an image must be a path, encoded bytes, a PIL image, an array or a tensor, got {type(image).__name__}",
        where="images",
    )
