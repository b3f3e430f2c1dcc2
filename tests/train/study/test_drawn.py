"""Images that a study draws itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.errors import ConfigError
from calibrant.train.data.leaves import LeafSpec
from calibrant.train.study.drawn import drawn_places, place_of
from calibrant.train.study.file import Part, StudyFile, read_study
from calibrant.train.study.plan import StudyPlan, plan_study
from calibrant.train.study.run import join_study, run_study, source_of

LEAVES = "leaves = { classes = 3, train_images = 8, val_images = 4, test_images = 4, imbalance = 2.0, size = 16 }"


@pytest.fixture
def leaves(study_file: Path) -> StudyFile:
    study_file.write_text(study_file.read_text().replace('name = "squares"', f'name = "leaves"\n{LEAVES}'))
    return read_study(study_file)


def plan_of(study: StudyFile, out: Path, places: dict[str, Path] | None = None) -> StudyPlan:
    return plan_study(study, scale="tiny", out=out, places=places or {}, seeds=1)


def test_a_study_of_drawn_leaves_needs_no_data(leaves: StudyFile, tmp_path: Path) -> None:
    plan = plan_of(leaves, tmp_path / "out")
    assert run_study(plan).missing == ()
    (block,) = [b for b in join_study(plan).blocks if b.view == ""]
    assert (block.data, block.images) == ("leaves", 6)  # the scale takes half of three times four test images
    folder = plan.places["leaves"]
    assert len(list((folder / "train").rglob("*.png"))) == 8 + 6 + 4


def test_what_a_kill_left_is_drawn_again_and_what_is_whole_is_not(leaves: StudyFile, tmp_path: Path) -> None:
    plan = plan_of(leaves, tmp_path)
    place = plan.places["leaves"]
    begun = place.with_name(place.name + ".part")
    (begun / "train" / "strange").mkdir(parents=True)
    source_of(plan)
    assert not begun.exists()
    assert not (place / "train" / "strange").exists()
    before = {file: file.stat().st_mtime_ns for file in place.rglob("*.png")}
    assert len(before) == 18 + 9 + 12
    source_of(plan)
    assert {file: file.stat().st_mtime_ns for file in place.rglob("*.png")} == before


def test_images_that_are_given_come_first(leaves: StudyFile, squares: Path, tmp_path: Path) -> None:
    plan = plan_of(leaves, tmp_path, {"leaves": squares})
    assert plan.places["leaves"] == squares
    source_of(plan)
    assert not (tmp_path / "images").exists()


def test_another_drawing_lies_elsewhere(tmp_path: Path) -> None:
    parts = [Part("plain"), Part("a", leaves=LeafSpec()), Part("b", leaves=LeafSpec(seed=1))]
    places = drawn_places(tmp_path, parts)
    assert list(places) == ["a", "b"]
    assert places["a"] != places["b"]
    assert places["a"] == place_of(tmp_path, LeafSpec())


def test_points_are_drawn_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "points.toml"
    file.write_text(
        f'title = "p"\nkind = "points"\ndata = [{{ name = "d", {LEAVES} }}]\nmethod = [{{ name = "ce" }}]\n'
    )
    with pytest.raises(ConfigError, match="leaves are drawn for ..data.. of a study of images"):
        read_study(file)
