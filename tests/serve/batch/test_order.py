"""An order is done image by image, and is the same order only with the same images."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from calibrant.serve.batch.order import Order, Workplace


@pytest.fixture
def order(tmp_path: Path, model_file: Path, tiny: ModuleType) -> Order:
    """Five pictures of one colour each; the third is no picture."""
    for n in range(5):
        folder = tmp_path / "data" / tiny.CLASSES[n % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (40 * n, 10, 200)).save(folder / f"{n}.png")
    (tmp_path / "data" / tiny.CLASSES[0] / "2.png").write_bytes(b"none")
    return Order(model_file, tmp_path / "data", "test", 2, False, "skip")


def test_rows_come_in_batches_without_what_cannot_be_read(order: Order) -> None:
    work = Workplace.of(order, threads=1)
    with ThreadPoolExecutor(2) as pool:
        part = work.part((0, 5), pool)
    assert [rows.ids for rows in part.rows] == [["auk/0.png", "auk/4.png"], ["bittern/1.png", "bittern/3.png"]]
    assert [rows.labels.tolist() for rows in part.rows] == [[0, 0], [1, 1]]
    assert [bad.id for bad in part.bad] == ["auk/2.png"]
    assert part.error is None


def test_a_bad_image_ends_a_part_where_it_may(order: Order) -> None:
    work = Workplace.of(replace(order, on_bad_image="fail"), threads=1)
    with ThreadPoolExecutor(2) as pool:
        part = work.part((0, 5), pool)
    assert part.error is not None
    assert part.error.where is not None
    assert part.error.where.endswith("2.png")


def test_logits_are_the_networks_own(order: Order, tiny: ModuleType) -> None:
    work = Workplace.of(order, threads=1)
    with ThreadPoolExecutor(1) as pool:
        (rows,) = work.part((3, 5), pool).rows
    pixels = np.stack([np.asarray(Image.new("RGB", (16, 16), (40 * n, 10, 200))) for n in (1, 3)])
    np.testing.assert_allclose(rows.logits, tiny.raw_logits(pixels), atol=2e-5)


def test_the_fingerprint_knows_the_images_names_and_labels(order: Order, tiny: ModuleType) -> None:
    before = Workplace.of(order, threads=1).fingerprint
    assert Workplace.of(replace(order, batch_size=7), threads=1).fingerprint == before
    (order.data / tiny.CLASSES[0] / "4.png").rename(order.data / tiny.CLASSES[1] / "4.png")
    assert Workplace.of(order, threads=1).fingerprint != before
