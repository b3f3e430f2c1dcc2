"""Which files may be served in the place of the given one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from calibrant.calibration.compare import Difference
from calibrant.commands.tune.candidates import Limits, Pictures, candidates, refusal
from calibrant.errors import CalibrantError, ConfigError, DataError
from calibrant.export.quantization.candidates import Data
from calibrant.images.image_set import ImageSet

from .conftest import difference

LIMITS = Limits(accuracy=0.01, ece=0.02)
SAME = difference(0.0, 0.005)


def test_what_is_shown_to_hold_may_be_served() -> None:
    assert refusal({"accuracy": difference(-0.002, 0.007), "ece": difference(0.005, 0.01)}, LIMITS, 1000) is None
    assert refusal({"accuracy": difference(0.1, 0.01), "ece": difference(-0.1, 0.01)}, LIMITS, 1000) is None


def test_what_is_shown_to_lose_is_refused_whatever_was_allowed_to_be_unproven() -> None:
    lost = {"accuracy": difference(-0.03, 0.01), "ece": SAME}
    assert "beyond 1" in (refusal(lost, LIMITS, 1000) or "")
    worse = {"accuracy": SAME, "ece": difference(0.05, 0.02)}
    assert refusal(worse, replace(LIMITS, proven=False), 1000) == "ECE +5.00 points (+3.00 .. +7.00), beyond 2"


def test_what_few_pictures_cannot_tell_is_refused_with_the_number_that_could() -> None:
    """.004 lost, .016 at worst, .01 allowed: twice as sharp is enough, which takes four times the pictures."""
    unknown = {"accuracy": difference(-0.004, 0.012), "ece": SAME}
    said = refusal(unknown, LIMITS, 1000) or ""
    assert "1,000 pictures cannot rule out a loss of 1; about 4,100 would" in said
    assert refusal(unknown, replace(LIMITS, proven=False), 1000) is None
    assert "allow more with --max-accuracy-loss" in (
        refusal({**unknown, "accuracy": difference(-0.015, 0.01)}, LIMITS, 9) or ""
    )


def test_a_calibration_without_wrong_rows_cannot_be_told() -> None:
    none = Difference(0.1, 0.1, 0.0, None, None)
    assert "too few" in (refusal({"accuracy": SAME, "ece": none}, LIMITS, 50) or "")
    assert refusal({"accuracy": SAME, "ece": none}, replace(LIMITS, proven=False), 50) is None


def test_pictures_that_fit_judge_nothing() -> None:
    images = ImageSet(tuple(map(str, range(99))), np.arange(99), pixels=np.zeros((99, 2, 2, 3), np.uint8))
    pictures = Pictures(images, 60)
    fitting, judging = pictures.parts()
    assert len(pictures) == 60
    assert len(fitting) == len(judging) == 30
    assert set(fitting) | set(judging) == set(range(60))
    assert len(set(pictures.labels)) == 60


def test_files_are_judged_on_the_same_pictures_by_their_own_answers(
    tmp_path: Path, tiny: ModuleType, pictures: Path
) -> None:
    """48 of 60 labels are what the file answers. Another that has its classes in reverse answers few of them right."""
    model = tiny.write(tmp_path / "birds.onnx")
    same, worse = tiny.write(tmp_path / "same.onnx"), tmp_path / "worse.onnx"
    before = tiny.weights
    try:
        tiny.weights = lambda classes=4: tuple(part[::-1] for part in before(classes))
        tiny.write(worse)
    finally:
        tiny.weights = before
    found, judging = candidates(model, pictures, tmp_path / "out", also=[same, worse], precisions=["fp32"])
    assert judging == 60
    assert [f.name for f in found] == ["fp32", "same", "worse"]
    assert [f.accuracy[0] for f in found[:2]] == [0.8, 0.8]
    assert found[0].refused is None
    assert found[1].differences["accuracy"].difference == 0.0
    assert "accuracy -" in (found[2].refused or "")
    assert not (tmp_path / "out").exists()


def test_a_file_without_the_given_ones_prediction_sets_is_refused_unless_nobody_needs_them(
    tmp_path: Path, tiny: ModuleType, pictures: Path
) -> None:
    model = tiny.write(tmp_path / "birds.onnx")
    lax = Limits(proven=False)
    bare = tiny.write(tmp_path / "bare.onnx", tiny.card(conformal=None))
    found, _ = candidates(model, pictures, tmp_path, also=[bare], precisions=["fp32"], limits=lax)
    assert "no prediction sets" in (found[1].refused or "")
    found, _ = candidates(model, pictures, tmp_path, also=[bare], precisions=["fp32"], limits=replace(lax, sets=False))
    assert found[1].refused is None
    found, _ = candidates(bare, pictures, tmp_path, also=[model], precisions=["fp32"], limits=lax)
    assert found[1].refused is None


def test_what_cannot_be_compared_is_refused_by_name(tmp_path: Path, tiny: ModuleType, pictures: Path) -> None:
    model = tiny.write(tmp_path / "birds.onnx")
    other = tiny.write(tmp_path / "other.onnx", tiny.card(classes=("a", "b", "c", "d")))
    with pytest.raises(ConfigError, match="other.onnx: its classes are not those of birds.onnx"):
        candidates(model, pictures, tmp_path, also=[other], precisions=["fp32"])
    with pytest.raises(DataError, match="20 labelled pictures are too few"):
        candidates(model, pictures, tmp_path, precisions=["int8"], most=20)


def test_a_quantized_file_is_made_of_some_pictures_and_judged_by_the_others(
    tmp_path: Path, tiny: ModuleType, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.export.quantization import quantize

    model, given = tiny.write(tmp_path / "birds.onnx"), []

    def made(path: Path, out: Path, data: Data, *, method: str) -> None:
        given.append((data, method))
        out.write_bytes(path.read_bytes())

    monkeypatch.setattr(quantize, "quantize", made)
    found, judging = candidates(model, pictures, tmp_path / "out", precisions=["int8", "fp16"])
    assert judging == 30
    assert [f.path.name for f in found] == ["birds.onnx", "birds-int8.onnx", "birds-fp16.onnx"]
    assert [method for _, method in given] == ["auto", "fp16"]
    data = given[0][0]
    assert (len(data.calibration), len(data.images), len(data.labels)) == (10, 20, 20)
    assert data.images.shape[1:] == (16, 16, 3)


def test_a_file_that_cannot_be_quantized_is_left_out_unless_it_was_asked_for(
    tmp_path: Path, tiny: ModuleType, pictures: Path
) -> None:
    """There is no convolution in it."""
    model, said = tiny.write(tmp_path / "birds.onnx"), []
    found, judging = candidates(model, pictures, tmp_path / "out", say=said.append)
    assert [f.name for f in found] == ["fp32"]
    assert judging == 60
    assert said[1].startswith("int8: left out, ")
    with pytest.raises(CalibrantError):
        candidates(model, pictures, tmp_path / "out", precisions=["int8"])
