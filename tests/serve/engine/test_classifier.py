from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, DataError, FormatError, ModelError
from calibrant.serve import load
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.providers import _cgroup_quota
from calibrant.serve.engine.result import answer


def test_probabilities_are_the_one_formula(model_file: Path, tiny: ModuleType) -> None:
    pixels = tiny.pictures(11)
    result = load(model_file, threads=1).predict(pixels)
    np.testing.assert_allclose(result.probabilities, tiny.expected(pixels), atol=1e-6)
    np.testing.assert_array_equal(result.labels, tiny.expected(pixels).argmax(axis=1))
    assert result.names[0] == tiny.CLASSES[result.labels[0]]


def test_knobs_give_the_formula_with_other_values(model_file: Path, tiny: ModuleType) -> None:
    pixels, target = tiny.pictures(6), (0.1, 0.2, 0.3, 0.4)
    result = load(model_file, threads=1).predict(pixels, temperature=0.7, adjust_strength=0.5, target_prior=target)
    np.testing.assert_allclose(result.probabilities, tiny.expected(pixels, 0.7, 0.5, target), atol=1e-6)


def test_every_form_of_a_picture_gives_the_same_answer(model_file: Path, tiny: ModuleType, tmp_path: Path) -> None:
    classifier = load(model_file, threads=1)
    picture = Image.fromarray(np.random.default_rng(3).integers(0, 255, (40, 31, 3)).astype(np.uint8))
    path = tmp_path / "a.png"
    picture.save(path)
    buffer = io.BytesIO()
    picture.save(buffer, "png")
    forms = [path, str(path), buffer.getvalue(), picture, np.asarray(picture), [path]]
    answers = [classifier.predict(form).probabilities for form in forms]
    pixels = tiny.PREPROCESSING.pixels(picture)[None]
    for got in answers:
        np.testing.assert_allclose(got, tiny.expected(pixels), atol=1e-6)


def test_a_notebook_sees_what_a_file_and_an_answer_are(model_file: Path, tiny: ModuleType) -> None:
    classifier, pixels = load(model_file, threads=1), tiny.pictures(3)
    assert repr(classifier).startswith(f"<Classifier {model_file}: 4 classes, ")
    assert str(model_file) in classifier._repr_html_()
    result = classifier.predict(pixels)
    assert repr(result).startswith(f"<Result: 3 pictures: {result.names[0]} {result.confidence[0]:.3f}")
    assert f"{result.confidence[2]:.3f}" in result._repr_html_()
    frame = result.to_frame()
    assert list(frame["label"]) == list(result.names)
    np.testing.assert_allclose(frame[[f"p_{c}" for c in tiny.CLASSES]], tiny.expected(pixels), atol=1e-6)


def test_the_batch_size_changes_nothing(model_file: Path, tiny: ModuleType) -> None:
    classifier, pixels = load(model_file, threads=1), tiny.pictures(13)
    whole = classifier.predict(pixels, batch_size=13).probabilities
    for size in (1, 4, 12):
        np.testing.assert_allclose(classifier.predict(pixels, batch_size=size).probabilities, whole, atol=1e-6)


def test_a_file_with_a_fixed_batch_serves_any_number_of_rows(tmp_path: Path, tiny: ModuleType) -> None:
    classifier = load(tiny.write(tmp_path / "fixed.onnx", batch=4), threads=1)
    pixels = tiny.pictures(6)
    np.testing.assert_allclose(classifier.predict(pixels).probabilities, tiny.expected(pixels), atol=1e-6)


def test_a_float_input_is_normalised_by_us(tmp_path: Path, tiny: ModuleType) -> None:
    classifier = load(tiny.write(tmp_path / "float.onnx", float_input=True), threads=1)
    pixels = tiny.pictures(3)
    np.testing.assert_allclose(classifier.predict(pixels).probabilities, tiny.expected(pixels), atol=1e-6)


def test_prediction_sets_hold_the_classes_above_the_threshold(model_file: Path, tiny: ModuleType) -> None:
    """lac with threshold 0.7 admits p >= 0.3; a request's temperature changes answers, never the file's own sets."""
    pixels = tiny.pictures(8)
    classifier = load(model_file, threads=1)
    p = tiny.expected(pixels)
    np.testing.assert_array_equal(classifier.predict(pixels, coverage=0.9).prediction_sets, p >= 0.3)
    other = classifier.predict(pixels, coverage=0.9, temperature=9.0)
    wanted = p >= 0.3
    wanted[np.arange(8), other.labels] = True
    np.testing.assert_array_equal(other.prediction_sets, wanted)
    assert other.sets()[0][0] == other.names[0]
    with pytest.raises(ConfigError, match="not under that of the request"):
        classifier.predict(pixels, coverage=0.9, target_prior=(0.97, 0.01, 0.01, 0.01))


def test_abstention_uses_the_files_threshold_unless_told_otherwise(model_file: Path, tiny: ModuleType) -> None:
    classifier, pixels = load(model_file, threads=1), tiny.pictures(4)
    assert not classifier.predict(pixels).abstained.any()
    assert classifier.predict(pixels, abstain_below=0.999).abstained.all()
    assert classifier.predict(pixels, temperature=1000.0, adjust_strength=0).abstained.all()  # all near 1/4, below 0.3


def test_the_ood_score_is_the_energy_of_the_networks_logits(model_file: Path, tiny: ModuleType) -> None:
    pixels = tiny.pictures(4)
    z = tiny.raw_logits(pixels)
    score = load(model_file, threads=1).predict(pixels, ood=True).ood_score
    np.testing.assert_allclose(score, -np.log(np.exp(z).sum(axis=1)), atol=1e-5)


def test_a_foreign_file_says_what_it_lacks(tmp_path: Path, tiny: ModuleType) -> None:
    classifier = load(tiny.write(tmp_path / "plain.onnx", with_card=False, producer="pytorch"), threads=1)
    with pytest.raises(FormatError, match="class names, preprocessing and calibration are unknown"):
        classifier.predict(tiny.pictures(1))
    outputs = classifier.session.run({"images": tiny.pictures(1)})
    np.testing.assert_allclose(outputs["probabilities"], tiny.expected(tiny.pictures(1)), atol=1e-6)


def test_our_own_file_without_its_block_was_cut(tmp_path: Path, tiny: ModuleType) -> None:
    with pytest.raises(FormatError, match="the file was cut"):
        load(tiny.write(tmp_path / "cut.onnx", with_card=False), threads=1).predict(tiny.pictures(1))


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), (b"", "cannot load"), (b"x" * 99, "cannot")])
def test_what_is_no_model_is_refused_by_name(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "thing.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match=f"thing.onnx: .*{message}"):
        load(path)


def test_providers_are_checked_before_onnxruntime_complains(model_file: Path) -> None:
    with pytest.raises(ConfigError, match='did you mean "cuda"'):
        load(model_file, providers=["cudaa"])
    with pytest.raises(ModelError, match="no coreml provider"):
        load(model_file, providers=["coreml"])


def test_pictures_of_the_wrong_kind_are_refused(model_file: Path) -> None:
    classifier = load(model_file, threads=1)
    with pytest.raises(DataError, match="are no pixels"):
        classifier.predict(np.full((1, 16, 16, 3), -1, np.float32))
    with pytest.raises(DataError, match="NoneType"):
        classifier.predict([None])
    with pytest.raises(ConfigError, match="it holds: 0.9, 0.95"):
        classifier.predict(np.zeros((1, 16, 16, 3), np.uint8), coverage=0.8)


def test_an_answer_that_is_not_a_number_gets_no_label(tiny: ModuleType) -> None:
    card = tiny.card()
    logits = np.array([[1.0, 2, 3, 4], [np.nan] * 4], np.float32)
    with pytest.raises(DataError, match="row 1 is not a number"):
        answer(card, DeployedFormula.of(card), {"logits": logits, "probabilities": softmax(logits)}, Knobs())


def test_no_pictures_give_no_rows(model_file: Path) -> None:
    result = load(model_file, threads=1).predict([])
    assert len(result) == 0
    assert result.probabilities.shape == (0, 4)


@pytest.mark.parametrize(("text", "cores"), [("200000 100000", 2.0), ("max 100000", None), ("50000 100000", 1.0)])
def test_the_quota_of_the_control_group_counts(tmp_path: Path, text: str, cores: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert _cgroup_quota(tmp_path) == cores
