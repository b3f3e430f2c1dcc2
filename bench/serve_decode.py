"""The evaluation transform of a deployed file beside timm's: difference in levels, and speed on one core.

python bench/serve_decode.py [DIR_OF_JPEGS] [--json PATH]
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from calibrant.images.decode import open_image
from calibrant.images.preprocessing import Preprocessing


def sources(folder: Path | None, n: int = 40) -> list[bytes]:
    """JPEG files, or smooth noise of 500 x 375 and, in turn, of 375 x 500."""
    if folder is not None:
        return [p.read_bytes() for p in sorted(folder.rglob("*.jpg"))[:n]]
    rng, out = np.random.default_rng(0), []
    for number in range(n):
        small = Image.fromarray(rng.integers(0, 255, (24, 32, 3)).astype(np.uint8))
        buffer = io.BytesIO()
        grain = rng.normal(0, 6, (375, 500, 3))
        pixels = np.asarray(small.resize((500, 375), Image.Resampling.BICUBIC), np.float64) + grain
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        (image.transpose(Image.Transpose.ROTATE_90) if number % 2 else image).save(buffer, "jpeg", quality=90)
        out.append(buffer.getvalue())
    return out


def cpu_of(work: Callable[[bytes], Any], data: list[bytes]) -> float:
    start = time.process_time()
    for one in data:
        work(one)
    return (time.process_time() - start) / len(data)


def main() -> None:
    import timm.data

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    data = sources(asked.folder)
    preprocessing = Preprocessing((224, 224), 256)
    transform = timm.data.create_transform((3, 224, 224), crop_pct=0.875, interpolation="bicubic")
    geometry = transform.transforms[:2]

    def ours(one: bytes) -> Any:
        return preprocessing.pixels(open_image(one))

    def timms(one: bytes) -> Any:
        image = Image.open(io.BytesIO(one)).convert("RGB")
        for step in geometry:
            image = step(image)
        return np.asarray(image)

    gaps = [np.abs(ours(one).astype(int) - timms(one)) for one in data]
    ratios, best = [], (float("inf"), float("inf"))
    for _ in range(7):
        a, b = cpu_of(ours, data), cpu_of(timms, data)
        ratios.append(b / a)
        best = min(best[0], a), min(best[1], b)
    report = {
        "images": len(data), "max_difference": int(max(g.max() for g in gaps)),
        "share_above_1": float(np.mean([(g > 1).mean() for g in gaps])),
        "ours_ms": 1e3 * best[0], "timm_ms": 1e3 * best[1], "speed": best[1] / best[0],
        "speed_median": float(np.median(ratios)),
    }  # fmt: skip
    print(json.dumps(report, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
