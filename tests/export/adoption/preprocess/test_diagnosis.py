"""Labelled pictures tell colour order and scale; ImageNet and CLIP come as a pair; resize and crop only warn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from calibrant.export.adoption.pictures import Pictures, random_pictures
from calibrant.export.adoption.preprocess.declared import Flags, read_declared
from calibrant.export.adoption.preprocess.diagnosis import (
    NORMALISATIONS,
    candidates_of,
    diagnose,
    given_name,
    hint,
    ranked,
    with_resizes,
)
from calibrant.export.adoption.reading.foreign import Foreign
from calibrant.export.adoption.reading.input_side import read_input
from calibrant.export.adoption.reading.original import Original
from calibrant.export.adoption.report import diagnosis_lines, lines
from calibrant.images.declared.declaration import Declared

from ..conftest import NAMES, SIZE, Foreigners, Maker

GUESS = read_declared(None, (SIZE, SIZE))


def softmax(m: Maker) -> str:
    return m.put("Softmax", m.head(m.body()), axis=1)


def original_of(path: Path) -> Original:
    foreign = Foreign.load(path)
    name = next(iter(foreign.outputs.values()))
    return Original.open(path, read_input(foreign.model), name, "probabilities", len(NAMES))


def drawn(p: NDArray[np.float64]) -> NDArray[np.int64]:
    """Labels as the network's own probabilities say, so that its own preprocessing is the true one."""
    u = np.random.default_rng(1).random((len(p), 1))
    return (p.cumsum(1) < u).sum(1).clip(0, p.shape[1] - 1)


@pytest.mark.parametrize("truth", ["RGB 0-1", "BGR 0-1", "RGB ImageNet", "BGR -1..1"])
def test_the_truth_is_in_the_set_that_fits(truth: str, foreigners: Foreigners) -> None:
    original = original_of(foreigners.write(softmax))
    pixels = random_pictures(200, (SIZE, SIZE))
    labels = drawn(original.of_pixels(pixels, candidates_of(GUESS)[truth]))
    found = diagnose(original, GUESS, pixels, labels)
    fitting = {c.name for c in found.fitting}
    assert truth in fitting
    assert len(fitting) <= 3
    assert found.agrees == ("RGB 0-1" in fitting)


def test_a_wrong_declaration_is_named_and_changes_nothing(foreigners: Foreigners, tmp_path: Path) -> None:
    path = foreigners.write(softmax)
    data = labelled_folder(tmp_path / "data", original_of(path), "BGR 0-1")
    wrong = Flags(NORMALISATIONS["caffe"][0], NORMALISATIONS["caffe"][1])
    done = foreigners.adopt(path, data=data, flags=wrong)
    text = "\n".join(lines(done, foreigners.adopted))
    assert "WRONG PREPROCESSING: BGR 0-1" in text
    assert "RGB caffe is" in text
    assert "Nothing was changed: --fix-preprocess takes BGR 0-1" in text
    assert done.card.preprocessing.mean == pytest.approx(NORMALISATIONS["caffe"][0])
    fixed = foreigners.adopt(path, data=data, flags=wrong, fix_preprocess=True)
    assert fixed.card.preprocessing.mean == (0, 0, 0)
    assert fixed.declared.bgr
    assert fixed.diagnosis is not None
    assert fixed.diagnosis.agrees
    assert fixed.accuracy is not None
    assert done.accuracy is not None
    assert fixed.accuracy > done.accuracy


def labelled_folder(folder: Path, original: Original, truth: str, rows: int = 120) -> Path:
    pixels = random_pictures(rows, (SIZE, SIZE))
    labels = drawn(original.of_pixels(pixels, candidates_of(GUESS)[truth]))
    for i, (x, label) in enumerate(zip(pixels, labels, strict=True)):
        (folder / NAMES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(folder / NAMES[label] / f"{i}.png")
    return folder


def test_imagenet_and_clip_are_answered_as_a_pair() -> None:
    """Two candidates within 2.9 standard errors are both shown; a clearly worse one is not."""
    rng = np.random.default_rng(0)
    loss = rng.exponential(1, 200)
    near, far = loss + rng.normal(0.001, 0.05, 200), loss + rng.normal(0.5, 0.3, 200)
    right = {name: np.ones(200, bool) for name in ("RGB ImageNet", "RGB CLIP", "RGB 0-1")}
    found = ranked({"RGB ImageNet": loss, "RGB CLIP": near, "RGB 0-1": far}, right)
    assert {c.name for c in found if c.fits} == {"RGB ImageNet", "RGB CLIP"}


def test_a_network_that_knows_nothing_is_called_so(foreigners: Foreigners) -> None:
    original = original_of(foreigners.write(softmax))
    pixels = random_pictures(200, (SIZE, SIZE))
    labels = np.random.default_rng(5).integers(0, 5, 200)
    found = diagnose(original, GUESS, pixels, labels)
    assert found.blind
    assert "knows nothing of these pictures" in diagnosis_lines(found)[0]
    assert "another order" in diagnosis_lines(found)[0]


def test_bytes_scaled_inside_leave_only_the_colour_order_open() -> None:
    assert list(candidates_of(GUESS, scaled_inside=True)) == ["RGB", "BGR", "as given"]


def test_a_declaration_of_its_own_is_a_candidate_too() -> None:
    own = replace(GUESS, preprocessing=replace(GUESS.preprocessing, mean=(0.1, 0.2, 0.3)))
    assert len(candidates_of(own)) == 13
    assert given_name(own, candidates_of(own)) == "as given"
    assert given_name(GUESS, candidates_of(GUESS)) == "RGB 0-1"


def test_resizing_otherwise_only_ever_warns(foreigners: Foreigners, tmp_path: Path) -> None:
    original = original_of(foreigners.write(softmax))
    pictures = Pictures.of(labelled_folder(tmp_path / "data", original, "RGB 0-1"), NAMES)
    found = diagnose(original, GUESS, pictures.pixels(GUESS.preprocessing), pictures.labels)
    whole = with_resizes(found, original, GUESS, pictures.pixels, pictures.labels)
    assert len(whole.resizes) == 7
    assert whole.candidates == found.candidates
    assert not any("resize" in line for line in diagnosis_lines(whole))  # as given is what the labels were made with


def test_without_labels_confidence_is_a_hint(foreigners: Foreigners) -> None:
    original = original_of(foreigners.write(softmax))
    best, given = hint(original, Declared(GUESS.preprocessing), random_pictures(20, (SIZE, SIZE)))
    assert best.split()[0] in ("RGB", "BGR")
    assert given == "RGB 0-1"
