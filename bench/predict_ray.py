"""Pictures a second of `calibrant predict` by its own engine and by actors of Ray on the same cores, interleaved.

    python bench/predict_ray.py MODEL.onnx FOLDER [--images 1500] [--rounds 3] [--actors 1 2] [--json PATH]

MODEL.onnx as `python bench/serve_speed.py --model lite0 --keep` writes it, or any other. The cluster is one of this
machine and runs before the first call, as a cluster does that others share. Each round calls every engine twice: for
one picture, which is the price of the start (model loaded, actor placed, pictures listed), and for all of them. The
rate is given with the start and without it, best of all rounds; the share is that of our own engine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibrant.progress import table
from calibrant.remote.ray_session import session
from calibrant.serve.batch.predict import predict_model
from calibrant.serve.engine.providers import available_cores


@dataclass
class Engine:
    name: str
    options: dict[str, Any]
    start: float = float("inf")  # seconds
    whole: float = float("inf")

    def rates(self, images: int) -> tuple[float, float]:
        return images / self.whole, (images - 1) / (self.whole - self.start)


@contextmanager
def folders(source: Path, images: int) -> Iterator[tuple[Path, Path]]:
    """Links to one and to so many pictures, class folders as they were."""
    found = sorted(p for p in source.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    step = max(1, len(found) // images)
    chosen = found[::step][:images]
    with tempfile.TemporaryDirectory() as place:
        for name, members in (("one", chosen[:1]), ("all", chosen)):
            for picture in members:
                folder = Path(place) / name / picture.parent.name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / picture.name).symlink_to(picture.resolve())
        yield Path(place) / "one", Path(place) / "all"


def measured(model: Path, data: Path, options: dict[str, Any]) -> float:
    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        predict_model(model, data, Path(place) / "out.parquet", **options)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    engines = [Engine("our own", {})]
    engines += [Engine(f"Ray, {n} actor(s)", {"engine": "ray", "actors": n}) for n in asked.actors]
    with (
        folders(asked.folder, asked.images) as (one, all_of_them),
        session("bench/predict_ray.py", available_cores(), "local"),
    ):
        images = sum(path.is_file() for path in all_of_them.rglob("*"))
        for _ in range(asked.rounds):
            for engine in engines:
                engine.start = min(engine.start, measured(asked.model, one, engine.options))
                engine.whole = min(engine.whole, measured(asked.model, all_of_them, engine.options))
    own = engines[0].rates(images)
    rows = []
    for engine in engines:
        whole, after = engine.rates(images)
        rows.append(
            [engine.name, f"{engine.start:.1f}", f"{whole:.1f}", f"{whole / own[0]:.2f}",
             f"{after:.1f}", f"{after / own[1]:.2f}"]
        )  # fmt: skip
    print(f"{images} pictures, {available_cores()} cores, best of {asked.rounds}, load {os.getloadavg()[0]:.1f}")
    print(table(["engine", "start, s", "pictures/s", "share", "after the start", "share"], rows))
    if asked.json:
        found = [{**asdict(engine), "rates": engine.rates(images)} for engine in engines]
        asked.json.write_text(json.dumps({"images": images, "cores": available_cores(), "engines": found}, indent=2))


if __name__ == "__main__":
    main()
