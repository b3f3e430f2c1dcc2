from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.errors import DataError
from calibrant.serve import load
from calibrant.serve.batch import order
from calibrant.serve.batch.predict import predict_model


def _folder(root: Path, classes: tuple[str, ...], each: int = 3) -> Path:
    rng = np.random.default_rng(5)
    for name in classes:
        (root / name).mkdir(parents=True)
        for n in range(each):
            pixels = rng.integers(0, 255, (20 + n, 24, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{n}.png")
    return root


def _own(folder: Path, ids: tuple[str, ...], tiny: ModuleType) -> np.ndarray:
    opened = [Image.open(folder / i).convert("RGB") for i in ids]
    logits: np.ndarray = tiny.raw_logits(np.stack([tiny.PREPROCESSING.pixels(image) for image in opened]))
    return logits


def test_the_file_holds_the_networks_own_logits_in_order(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    folder = _folder(tmp_path / "data", tiny.CLASSES[:3])
    out = predict_model(model_file, folder, tmp_path / "p.parquet", batch_size=2, part=4)
    got = read_predictions(out)
    assert got.ids == tuple(sorted(got.ids))
    assert got.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert got.class_names == tiny.CLASSES
    assert got.source.train_prior == tiny.TRAIN
    assert "applied" not in got.source.model
    np.testing.assert_allclose(got.logits, _own(folder, got.ids, tiny), atol=2e-5)
    assert not list(tmp_path.glob("*.parts"))


def test_a_calibrator_that_cannot_be_undone_is_named(tmp_path: Path, tiny: ModuleType) -> None:
    block = tiny.card(calibrator={"method": "isotonic", "parameters": {}})
    model = tiny.write(tmp_path / "m.onnx", block)
    folder = _folder(tmp_path / "data", tiny.CLASSES[:2], 1)
    got = read_predictions(predict_model(model, folder, tmp_path / "p.parquet"))
    assert got.source.model["applied"]["calibrator"]["method"] == "isotonic"
    np.testing.assert_allclose(got.logits, _own(folder, got.ids, tiny) / tiny.TEMPERATURE, atol=2e-5)


def test_images_without_class_folders_have_no_labels(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    folder = _folder(tmp_path / "data", tiny.CLASSES[:1]) / tiny.CLASSES[0]
    assert read_predictions(predict_model(model_file, folder, tmp_path / "p.parquet")).labels.tolist() == [-1] * 3


def test_a_bad_image_stops_by_name_or_is_listed(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    folder = _folder(tmp_path / "data", tiny.CLASSES[:2])
    (folder / "auk" / "1.png").write_bytes(b"no picture")
    out = tmp_path / "p.parquet"
    with pytest.raises(DataError, match=r"1\.png: not a JPEG"):
        predict_model(model_file, folder, out)
    assert not out.exists()
    assert len(read_predictions(predict_model(model_file, folder, out, on_bad_image="skip"))) == 5
    assert (
        tmp_path / "p.parquet.bad-images.txt"
    ).read_text() == "auk/1.png\tnot a JPEG, PNG, WebP, BMP or TIFF image\n"


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, model_file: Path, tiny: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = _folder(tmp_path / "data", tiny.CLASSES), tmp_path / "p.parquet"
    decode, seen = order._decode, []

    def interrupted(card: Any, opened: Any) -> object:
        seen.append(opened.args[0])  # the row
        if len(seen) > 9:
            raise KeyboardInterrupt
        return decode(card, opened)

    monkeypatch.setattr(order, "_decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict_model(model_file, folder, out, part=4, batch_size=1, workers=1)
    assert not out.exists()
    seen.clear()
    monkeypatch.setattr(order, "_decode", lambda card, opened: (seen.append(opened.args[0]), decode(card, opened))[1])
    predict_model(model_file, folder, out, part=4, batch_size=1, workers=1)
    assert len(seen) == 4  # two of three parts were there
    np.testing.assert_allclose(read_predictions(out).logits, _own(folder, read_predictions(out).ids, tiny), atol=2e-5)


def test_a_changed_image_is_not_resumed_over(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    folder, out = _folder(tmp_path / "data", tiny.CLASSES[:2], 1), tmp_path / "p.parquet"
    parts = tmp_path / "p.parquet.parts"
    parts.mkdir()
    (parts / "key.txt").write_text("of something else")
    (parts / "part-000000.parquet").write_bytes(b"stale")
    predict_model(model_file, folder, out)
    assert len(read_predictions(out)) == 2


def test_a_predictions_file_beside_the_images_is_no_shard(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    """It is from an earlier run: the default is predictions.parquet, and images often lie where one works."""
    for folder in (
        _folder(tmp_path / "a", tiny.CLASSES[:2]),
        _folder(tmp_path / "b", tiny.CLASSES[:1]) / tiny.CLASSES[0],
    ):
        first = predict_model(model_file, folder, folder / "predictions.parquet")
        again = predict_model(model_file, folder, tmp_path / "again.parquet")
        assert read_predictions(again).ids == read_predictions(first).ids


@pytest.mark.skipif(os.name != "posix", reason="names of files are text there")
def test_names_of_files_need_not_be_text(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    folder = _folder(tmp_path / "a", tiny.CLASSES[:1], 1) / tiny.CLASSES[0]
    picture = (folder / "0.png").read_bytes()
    for name in (b"b\xff.png", "\u65e5 'x'.PNG".encode(), b"c\nd.png"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(picture)
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xfe\n.png")).write_bytes(b"junk")
    got = read_predictions(predict_model(model_file, folder, tmp_path / "p.parquet", on_bad_image="skip"))
    assert set(got.ids) == {"0.png", "b\\xff.png", "\u65e5 'x'.PNG", "c\nd.png"}
    (line,) = (tmp_path / "p.parquet.bad-images.txt").read_text().splitlines()
    assert line.split("\t")[0] == "bad\\xfe\\n.png"
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xfe\n.png")).unlink()
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    with pytest.raises(DataError, match="gone.png"):
        predict_model(model_file, folder, tmp_path / "q.parquet")


def test_a_folder_of_other_classes_is_predicted_and_its_names_are_kept(
    tmp_path: Path, model_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = _folder(tmp_path / "d", ("cranes", "auk", "heron"), 2)
    out = predict_model(model_file, data, tmp_path / "p.parquet", part=3)
    got = read_predictions(out)
    assert got.ids == ("auk/0.png", "auk/1.png", "cranes/0.png", "cranes/1.png", "heron/0.png", "heron/1.png")
    assert got.labels.tolist() == [0, 0, -1, -1, -1, -1]
    assert got.label_names == ("auk", "auk", "cranes", "cranes", "heron", "heron")
    assert '4 of 6 images are of classes that the model does not know ("cranes"; did you mean "crane"?)' in caplog.text
    assert got.labelled().ids == ("auk/0.png", "auk/1.png")
    assert len(read_predictions(predict_model(model_file, data / "auk", tmp_path / "q.parquet"))) == 2
    assert read_predictions(tmp_path / "q.parquet").label_names is None


def test_offline_and_engine_agree(tmp_path: Path, model_file: Path, tiny: ModuleType) -> None:
    """softmax of the deployed logits, redone from the file's own, equals what the engine answers."""
    folder = _folder(tmp_path / "data", tiny.CLASSES)
    got = read_predictions(predict_model(model_file, folder, tmp_path / "p.parquet"))
    answer = load(model_file, threads=1).predict([folder / i for i in got.ids])
    zeta = got.logits / tiny.TEMPERATURE - np.log(np.array(tiny.TRAIN) * 4)
    p = np.exp(zeta - zeta.max(axis=1, keepdims=True))
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), answer.probabilities, atol=1e-6)
