"""Triton Python backend: image files to the input that the classifier was evaluated on. Needs Pillow and numpy.

Written by calibrant export triton; the tables below are the preprocessing of the model and what its input is.
"""

import io

import numpy as np
from PIL import Image, ImageOps

PREPROCESSING = {}  # type: ignore[var-annotated]
INPUT = {}  # type: ignore[var-annotated]
MAX_PIXELS = 100_000_000


def pixels(data: bytes) -> np.ndarray:  # type: ignore[type-arg]
    """uint8 [H, W, 3] of an image file: upright, RGB, resized and cropped in one step."""
    with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP", "BMP", "TIFF", "MPO")) as opened:
        if opened.width * opened.height > MAX_PIXELS:
            raise ValueError(f"{opened.width} x {opened.height} pixels are too many")
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I;16"):  # which Pillow would cut off at 255, and make white
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = image.convert("RGB")
    height, width = PREPROCESSING["size"]
    kind = getattr(Image.Resampling, PREPROCESSING["interpolation"].upper())
    crop = PREPROCESSING["crop"]
    box = None if crop == "squash" else _cover(*image.size) if crop == "cover" else _box(*image.size)
    return np.asarray(image.resize((width, height), kind, box=box), dtype=np.uint8)


def _box(width: int, height: int) -> tuple[float, float, float, float]:
    resize, size = PREPROCESSING["resize"], PREPROCESSING["size"]
    if width <= height:
        new_width, new_height = resize, int(resize * height / width)
    else:
        new_width, new_height = int(resize * width / height), resize
    top = max(0, round((new_height - size[0]) / 2.0))
    left = max(0, round((new_width - size[1]) / 2.0))
    across, down = width / new_width, height / new_height
    right, bottom = (left + size[1]) * across, (top + size[0]) * down
    return left * across, top * down, min(right, width), min(bottom, height)


def _cover(width: int, height: int) -> tuple[float, float, float, float]:
    size = PREPROCESSING["size"]
    scale = min(width / size[1], height / size[0]) * min(1.0, min(size) / PREPROCESSING["resize"])
    across, down = scale * size[1], scale * size[0]
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


def model_input(images: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """uint8 [N, H, W, 3] in the type and layout of the model's input, normalised where it is of floating point."""
    if INPUT["dtype"] == "float32":
        mean, std = np.asarray(PREPROCESSING["mean"]), np.asarray(PREPROCESSING["std"])
        scale, shift = (1.0 / (255.0 * std)).astype(np.float32), (mean / std).astype(np.float32)
        images = images.astype(np.float32) * scale - shift
    return images if INPUT["layout"] == "NHWC" else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


class TritonPythonModel:
    """One row of `images` for each row of `image_file`; a row that cannot be read fails its request alone."""

    def execute(self, requests):  # type: ignore[no-untyped-def]
        import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

        responses = []
        for request in requests:
            files = pb_utils.get_input_tensor_by_name(request, "image_file").as_numpy()
            try:
                images = model_input(np.stack([pixels(row[0]) for row in files]))
            except Exception as error:  # Pillow raises anything on damaged bytes
                message = pb_utils.TritonError(f"image cannot be decoded ({error})")
                responses.append(pb_utils.InferenceResponse(error=message))
                continue
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("images", images)]))
        return responses
