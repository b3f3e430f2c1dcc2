"""From pictures to a proven file: what lies in the folder, what is done again after a kill, who wins."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from PIL import Image

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import read_predictions
from calibrant.commands.fit import heads, judge, run, tuning
from calibrant.commands.fit.plan import Wanted
from calibrant.errors import CalibrantError, ConfigError, DataError

pytestmark = pytest.mark.slow

COLOURS = {"blue": (40, 60, 190), "green": (50, 160, 70), "red": (200, 60, 50)}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "test_resnet.safetensors"
    save_file(timm.create_model("test_resnet", pretrained=False).state_dict(), file)
    return file


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three colours under noise: 14 to learn from and 5 to test, one byte-equal copy and one leak among them."""
    root, rng = tmp_path_factory.mktemp("fit") / "my pictures", np.random.default_rng(3)
    for split, count in (("train", 14), ("test", 5)):
        for name, colour in COLOURS.items():
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                noise = rng.normal(0, 110, (9, 9, 3)).repeat(6, 0).repeat(6, 1)
                pixels = np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    (root / "train/red/copy.png").write_bytes((root / "train/red/0.png").read_bytes())
    (root / "test/blue/leak.png").write_bytes((root / "train/blue/0.png").read_bytes())
    (root / "train/green/broken.png").write_bytes(b"no picture")
    return root


def asked(pictures: Path, weights: Path, **more: object) -> Wanted:
    given = {"preset": "fast", "weights": weights, "model": "test_resnet", "image_size": 32, "device": "cpu"}
    return Wanted(images=pictures, **{**given, **more})  # type: ignore[arg-type]


def go(wanted: Wanted, out: Path, **more: object) -> tuple[dict[str, object], list[str]]:
    said: list[str] = []
    result = run.run(wanted, out, overwrite=bool(more.get("overwrite")), workers=1, say=said.append)
    assert [line.partition("]")[0] for line in said if line.startswith("[")] == [f"[{n}/6" for n in range(1, 7)]
    return result, said


@pytest.fixture(scope="module")
def finished(pictures: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    out = tmp_path_factory.mktemp("out") / "the run"
    return out, go(asked(pictures, weights), out)[0]


def test_one_folder_holds_file_calibrator_predictions_and_report(finished: tuple[Path, dict[str, object]]) -> None:
    out, result = finished
    card = OnnxFile.open(out / "model.onnx").card()
    assert card.classes == ("blue", "green", "red")
    assert card.name == "model"
    assert {p.name for p in (out / "predictions").glob("*.parquet")} == {
        "oof.parquet", "test.parquet", "test-without-leaks.parquet",
    }  # fmt: skip
    page = (out / "report.html").read_text()
    for text in ("Data", "What was tried", "broken.png", "Next", "Class shares in use"):
        assert text in page
    assert "'" in result["next"][0]  # type: ignore[index]  # a folder with a space is quoted


def test_copies_and_broken_files_train_nothing_and_leaks_are_told(finished: tuple[Path, dict[str, object]]) -> None:
    out, _ = finished
    oof = read_predictions(out / "predictions" / "oof.parquet")
    assert len(oof) == 42  # 14 of each class: neither the copy nor the broken file
    assert len(set(oof.groups["fold"])) == 10
    assert len(read_predictions(out / "predictions" / "test.parquet")) == 16
    clean = read_predictions(out / "predictions" / "test-without-leaks.parquet")
    assert len(clean) == 15
    assert not any("leak" in name for name in clean.ids)


def test_deployed_file_says_what_head_and_formula_say(finished: tuple[Path, dict[str, object]], pictures: Path) -> None:
    from calibrant.calibration import Calibrator
    from calibrant.calibration.formula import Formula, stored_prior
    from calibrant.serve.batch.predict import predict_model

    out, _ = finished
    rows = read_predictions(out / "predictions" / "test.parquet")
    served = read_predictions(predict_model(out / "model.onnx", pictures, out.parent / "served.parquet", split="test"))
    found = Calibrator.load(out / "calibrator.json")
    prior = stored_prior(found, rows.source.train_prior, rows.source.absorbed)
    place = {Path(name).name + Path(name).parent.name: i for i, name in enumerate(served.ids)}
    order = [place[Path(name).name + Path(name).parent.name] for name in rows.ids]
    gap = Formula(3, found, prior).probabilities(rows.logits) - Formula(3, found, prior).probabilities(
        served.logits[order]
    )
    assert np.abs(gap).max() < 1e-4


def test_a_finished_fit_says_its_result_again_and_refuses_another_question(
    finished: tuple[Path, dict[str, object]], pictures: Path, weights: Path
) -> None:
    out, result = finished
    before = (out / "model.onnx").stat().st_mtime_ns
    again, said = go(asked(pictures, weights), out)
    assert "going on" in said[0]
    assert again["chosen"] == result["chosen"]
    assert (out / "model.onnx").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="holds a fit with seed 1"):
        go(asked(pictures, weights, seed=2), out)


def test_other_images_than_before_are_refused(
    finished: tuple[Path, dict[str, object]], pictures: Path, weights: Path
) -> None:
    new = pictures / "train" / "red" / "new.png"
    new.write_bytes((pictures / "train/red/1.png").read_bytes())
    try:
        with pytest.raises(DataError, match="not those that this fit began with"):
            go(asked(pictures, weights), finished[0])
    finally:
        new.unlink()


def test_a_folder_of_something_else_is_left_alone(pictures: Path, weights: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="was not made by calibrant fit"):
        go(asked(pictures, weights), tmp_path, overwrite=True)
    assert (tmp_path / "letter.txt").is_file()


class _Killed(Exception):
    pass


@pytest.mark.parametrize("where", [(heads, "choose"), (judge, "judge")])
def test_a_fit_that_was_killed_goes_on_and_ends_the_same(
    where: tuple[object, str],
    finished: tuple[Path, dict[str, object]],
    pictures: Path,
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object, **__: object) -> None:
        raise _Killed

    out = tmp_path / "the run"
    with monkeypatch.context() as broken:
        broken.setattr(*where, die)
        with pytest.raises(_Killed):
            go(asked(pictures, weights), out)
    result, _ = go(asked(pictures, weights), out)
    assert result["evaluation"] == finished[1]["evaluation"]
    assert json.loads((out / "fit.json").read_text())["steps"]["report"]["chosen"] == result["chosen"]


@pytest.mark.parametrize("wins", [True, False])
def test_fine_tuning_takes_the_place_only_where_it_wins(
    wins: bool, pictures: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrant.train.heads import cross_validation

    monkeypatch.setattr(cross_validation, "difference", lambda first, second: (0.2 if wins else 0.05, 0.1))
    monkeypatch.setattr(tuning, "affordable", lambda *_: 1)
    result, _ = go(asked(pictures, weights, preset="balanced"), tmp_path / "out")
    out = tmp_path / "out"
    task = json.loads((out / "config.json").read_text()).get("task")
    if wins:
        assert result["chosen"] == "fine-tuned"
        assert (out / "predictions" / "val.parquet").is_file()
        assert (out / "frozen-head" / "predictions" / "oof.parquet").is_file()
        assert task != "head"
    else:
        assert result["chosen"] != "fine-tuned"
        assert task == "head"
        assert (out / "fine-tuned" / "model.safetensors").is_file()
    checkpoint = OnnxFile.open(out / "model.onnx").card().source["checkpoint_sha256"]
    from calibrant.train.run.folder import sha256_of

    assert checkpoint == sha256_of(out / "model.safetensors")


def test_one_class_is_refused_in_one_line(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "in" / "only").mkdir(parents=True)
    Image.new("RGB", (40, 40), "red").save(tmp_path / "in" / "only" / "a.png")
    with pytest.raises(CalibrantError, match="a classifier needs two"):
        go(asked(tmp_path / "in", weights), tmp_path / "out")
