"""Every layout gives the same pictures and labels, through what each command reads with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.dashboard.draw import pictures
from calibrant.errors import DataError
from calibrant.export.quantization.quantize import held_out
from calibrant.export.run import real_images
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL
from calibrant.images.layouts import LAYOUTS, images_to_predict, layout_of, list_images
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data
from calibrant.train.heads.features.extract import read_splits

from .conftest import CLASSES, colour, everyone, folder, png

WHOLE = Preprocessing((32, 32), 32, interpolation="nearest")
Seen = set[tuple[tuple[int, ...], str]]


def seen(images: ImageSet, names: tuple[str, ...] = CLASSES) -> Seen:
    """Colour and class of every picture."""
    return {(images.image(i).getpixel((3, 4)), names[images.labels[i]]) for i in range(len(images))}  # type: ignore[misc]


def wanted(split: str) -> Seen:
    return {(colour(s, k, i), CLASSES[k]) for s, k, i in everyone(split)}


def test_it_is_recognised(written: tuple[str, Path]) -> None:
    name, path = written
    assert layout_of(path) == name
    assert name in LAYOUTS


def test_training_reads_it(written: tuple[str, Path]) -> None:
    splits = read_data(DataConfig(path=written[1]))
    assert splits.class_names == CLASSES
    assert splits.test is not None
    assert seen(splits.test) == wanted("test")
    assert seen(splits.train) | seen(splits.val) == wanted("train")


def test_features_read_it(written: tuple[str, Path]) -> None:
    names, sets = read_splits(written[1])
    assert names == CLASSES
    assert seen(sets["train"]) == wanted("train")
    assert seen(sets["test"]) == wanted("test")


def test_predict_reads_it_for_a_model_with_other_classes_in_another_order(written: tuple[str, Path]) -> None:
    """Of a run and of a deployed file: one function."""
    model = ("bittern", "crane", "auk")
    found = images_to_predict(written[1], model, split="test")
    assert seen(found, model) == wanted("test")
    assert found.label_names is None
    assert {(opened().getpixel((3, 4)), model[found.labels[i]]) for i, opened in found.in_order(0, len(found))} == (
        wanted("test")
    )
    assert seen(images_to_predict(written[1], model, split="train"), model) == wanted("train")


def test_predict_keeps_the_names_of_classes_that_the_model_does_not_know(written: tuple[str, Path]) -> None:
    found = images_to_predict(written[1], ("crane", "bittern"), split="test")
    assert found.label_names is not None
    assert set(zip(found.labels.tolist(), found.label_names, strict=True)) == {(-1, "auk"), (1, "bittern")}
    assert len(set(found.ids)) == len(found) == 10


@pytest.mark.parametrize(
    "now", [("Rohrdommel", "Kranich", "Alk"), ("Rohrdommel", "crane", "auk"), ("crane", "auk", "x")]
)
def test_folders_bear_the_names_of_before_a_relabelling(written: tuple[str, Path], now: tuple[str, ...]) -> None:
    former = ("bittern", "crane", "auk")
    for found in (
        images_to_predict(written[1], now, split="test", former=former),
        held_out(written[1], now, former=former),
    ):
        assert found.label_names is None
        assert seen(found, former) <= wanted("train") | wanted("test")
    assert seen(images_to_predict(written[1], former, split="test", former=now), former) == wanted("test")


def test_quantize_reads_what_isheld_out(written: tuple[str, Path]) -> None:
    assert seen(held_out(written[1], CLASSES)) == wanted("train" if written[0] == "aircraft" else "test")
    with pytest.raises(DataError, match='is of "auk", which is not a class of the model'):
        held_out(written[1], ("crane", "bittern"))


def test_export_compares_on_images_of_all_splits(written: tuple[str, Path]) -> None:
    found = real_images(list_images(written[1]), WHOLE, limit=1000)
    colours = {tuple(int(v) for v in image[3, 4]) for image in found}
    assert colours == {c for c, _ in wanted("train") | wanted("test")}


def test_the_dashboard_shows_it_by_the_ids_of_predictions(written: tuple[str, Path]) -> None:
    path = written[1]
    whole = list_images(path).sets["test"]
    where = (path if path.is_dir() else path.parent, path)
    for i in (0, len(whole) - 1):
        shown = pictures.find(where, whole.ids[i])
        assert shown is not None
        assert pictures.thumbnail(shown, 8).getpixel((3, 4)) == whole.image(i).getpixel((3, 4))
    assert pictures.find(where, "../" + whole.ids[0]) is None


def test_a_list_does_not_lead_the_dashboard_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png("test", 0, 0))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "list.csv").write_text("path,label\n../secret.png,a\n")
    assert list_images(tmp_path / "data" / "list.csv").whole().ids == ("../secret.png",)
    assert pictures.find((tmp_path / "data" / "list.csv",), "../secret.png") is None


def test_pictures_that_are_not_read_are_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder(tmp_path)
    for name in ("IMG_1.HEIC", "IMG_2.heic", "b.gif", "notes.txt", ".hidden.gif"):
        (tmp_path / "train" / "auk" / name).write_bytes(b"")
    listing = list_images(tmp_path)
    assert len(listing.sets["train"]) == 10
    assert listing.unread == ("train/auk/IMG_1.HEIC", "train/auk/IMG_2.heic", "train/auk/b.gif")
    assert "3 pictures are left out, their formats are not read: 2 heic, 1 gif (train/auk/IMG_1.HEIC" in caplog.text
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.heic").write_bytes(b"")
    with pytest.raises(DataError, match=r"holds no images .*convert a\.heic"):
        list_images(tmp_path / "only")


def test_a_folder_without_classes_is_images_without_labels(tmp_path: Path) -> None:
    folder(tmp_path)
    found = list_images(tmp_path / "test" / "auk")
    assert (found.class_names, list(found.sets)) == ((), [ALL])
    assert found.sets[ALL].labels.tolist() == [-1] * 5
    asked = images_to_predict(tmp_path / "test" / "auk", CLASSES, split="val")
    assert asked.ids == tuple(f"{i}.png" for i in range(5))
    assert asked.labels.tolist() == [-1] * 5
    with pytest.raises(DataError, match="has images but no class folders"):
        read_data(DataConfig(path=tmp_path / "test" / "auk"))


def test_ids_are_below_the_split_in_prediction_and_below_the_root_in_training(tmp_path: Path) -> None:
    """As they always were: old predictions find their images."""
    folder(tmp_path)
    assert images_to_predict(tmp_path, CLASSES, split="test").ids[0] == "auk/0.png"
    assert images_to_predict(tmp_path / "test", CLASSES, split="test").ids[0] == "auk/0.png"
    assert read_splits(tmp_path)[1]["test"].ids[0] == "test/auk/0.png"
    with pytest.raises(DataError, match='no split "val"; choose with --split: train, test'):
        images_to_predict(tmp_path, CLASSES, split="val")


def test_a_folder_is_read_in_the_order_of_the_models_classes(tmp_path: Path) -> None:
    folder(tmp_path)
    found = images_to_predict(tmp_path, ("bittern", "auk"), split="test")
    assert found.labels.tolist() == [0] * 5 + [1] * 5
    assert found.ids[4:6] == ("bittern/4.png", "auk/0.png")
    strange = images_to_predict(tmp_path, ("crane", "bittern"), split="test")  # what it does not know comes last
    assert strange.labels.tolist() == [1] * 5 + [-1] * 5
    assert strange.ids[4:6] == ("bittern/4.png", "auk/0.png")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for name in ("bus", "train"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "1.png")
    assert list_images(tmp_path).class_names == ("bus", "train")


def test_what_is_no_layout_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"")
    with pytest.raises(DataError, match=r"neither a folder of images, nor a \.csv list"):
        layout_of(tmp_path / "x.zip")
    with pytest.raises(DataError, match="no such file or folder"):
        layout_of(tmp_path / "nowhere")


def test_the_pixels_are_those_that_were_written(written: tuple[str, Path]) -> None:
    images = list_images(written[1]).sets["test"]
    assert {np.asarray(images.image(i)).shape for i in range(len(images))} == {(32, 32, 3)}


def test_the_page_on_data_has_every_layout() -> None:
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    assert [name for name in LAYOUTS if f"`{name}`" not in page] == []


def _as(root: Path, place: str) -> Path:
    """The pictures of every split, each at `place`."""
    for split in ("train", "test"):
        for s, k, i in everyone(split):
            file = root / place.format(split=split, Split=split.title(), name=CLASSES[k]) / f"{split} {i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(s, k, i))
    return root


@pytest.mark.parametrize(
    "place",
    [
        "{Split}/{name}",  # in capitals
        "{name}/{split}", "{name}/{Split}",  # the classes first
        "My pictures/{split}/{name}", "a/b/{Split}/{name}", "a/{name}/{split}",  # in the folder of an archive
    ],
)  # fmt: skip
def test_folders_are_read_as_people_divide_them(tmp_path: Path, place: str) -> None:
    root = _as(tmp_path, place)
    (root / "README.txt").write_text("")
    (root / "__MACOSX").mkdir()
    listing = list_images(root)
    assert listing.class_names == CLASSES
    assert {split: seen(images) for split, images in listing.sets.items()} == {s: wanted(s) for s in ("train", "test")}
    assert all((root / id).is_file() for id in listing.sets["test"].ids)
    assert seen(images_to_predict(root, CLASSES, split="test")) == wanted("test")


def test_classes_in_the_folder_of_an_archive_are_not_divided(tmp_path: Path) -> None:
    listing = list_images(_as(tmp_path, "photos-main/{name}"))
    assert (listing.class_names, list(listing.sets)) == (CLASSES, [ALL])
    assert seen(listing.sets[ALL]) == wanted("train") | wanted("test")


def test_one_class_is_no_folder_of_an_archive(tmp_path: Path) -> None:
    """Where it holds no folders or its own splits, or pictures lie beside it."""
    _as(tmp_path / "divided", "auk/{split}")
    listing = list_images(tmp_path / "divided")
    assert listing.class_names == ("auk",)
    _as(tmp_path / "one", "auk")
    assert list_images(tmp_path / "one").class_names == ("auk",)
    _as(tmp_path / "beside", "auk/2020")
    (tmp_path / "beside" / "cover.png").write_bytes(png("test", 0, 0))
    assert list_images(tmp_path / "beside").class_names == ("auk",)


def test_folders_of_classes_that_are_only_partly_splits_are_read_whole(tmp_path: Path) -> None:
    _as(tmp_path, "{name}/{split}")
    (tmp_path / "auk" / "young").mkdir()
    (tmp_path / "auk" / "young" / "1.png").write_bytes(png("test", 0, 0))
    assert list(list_images(tmp_path).sets) == [ALL]
