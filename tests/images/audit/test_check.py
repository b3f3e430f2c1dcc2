"""What a folder with every kind of trouble is told to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.images.audit.check import DataCheck, check
from calibrant.images.audit.look import look_at
from calibrant.images.audit.words import sentences
from calibrant.images.layouts import list_images


@pytest.fixture
def checked(tmp_path: Path) -> DataCheck:
    rng = np.random.default_rng(5)
    for split, count in (("train", 4), ("test", 2)):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (7, 7, 3)).astype(np.uint8)
                Image.fromarray(pixels).resize((80, 90)).save(tmp_path / split / name / f"{i}.png")
    train, test = tmp_path / "train", tmp_path / "test"
    (train / "cat" / "same.png").write_bytes((train / "cat" / "0.png").read_bytes())
    Image.open(train / "cat" / "1.png").resize((60, 70)).save(train / "dog" / "relabelled.png")
    Image.open(train / "dog" / "2.png").save(test / "dog" / "leak.jpg", quality=90)
    (train / "dog" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    Image.new("RGB", (64, 64), "white").save(train / "cat" / "white.png")
    Image.fromarray(rng.integers(0, 256, (20, 300, 3)).astype(np.uint8)).save(train / "cat" / "strip.png")
    (train / "dog" / "phone.heic").write_bytes(b"?")
    listing = list_images(tmp_path)
    return check(listing, {s: look_at(images, workers=2) for s, images in listing.sets.items()})


def names(found: DataCheck, rows: object) -> set[str]:
    return {Path(found.ids[i]).name for i in rows}  # type: ignore[attr-defined]


def test_each_trouble_is_found_and_nothing_else(checked: DataCheck) -> None:
    assert names(checked, checked.unreadable) == {"broken.jpg"}
    assert names(checked, checked.blank) == {"white.png"}
    assert names(checked, checked.small) == names(checked, checked.strips) == {"strip.png"}
    assert names(checked, checked.doubled) == {"same.png"}
    assert names(checked, checked.doubtful) == {"1.png", "relabelled.png"}
    assert names(checked, checked.leaked) == {"leak.jpg"}
    assert len(checked.pairs) == 3
    assert [Path(name).name for name in checked.unread] == ["phone.heic"]
    assert {min(size) for size in checked.sizes()} == {20, 80}


def test_copies_are_one_group(checked: DataCheck) -> None:
    place = {name: i for i, name in enumerate(checked.ids)}
    assert checked.group[place["train/dog/relabelled.png"]] == checked.group[place["train/cat/1.png"]]
    assert checked.group[place["train/cat/2.png"]] == place["train/cat/2.png"]


def test_sentences_say_the_grave_ones_first(checked: DataCheck) -> None:
    said = sentences(checked)
    assert "two labels" in said[0]
    assert "shown in training too" in said[1]
    assert any("heic" in line for line in said)
    assert checked.to_dict()["formats_not_read"] == {"heic": 1}
