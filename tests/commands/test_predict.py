"""`calibrant predict`: one command for a run and for a deployed file, and what each refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from calibrant.artifacts.predictions import read_predictions
from calibrant.commands.predict import predict
from calibrant.errors import CalibrantError

V1 = Path(__file__).resolve().parents[1] / "golden" / "v1"
FILE = V1 / "deployed" / "baked.onnx"


def called(*arguments: object) -> Result:
    return CliRunner().invoke(predict, list(map(str, arguments)), catch_exceptions=False)


def test_a_run_and_the_file_made_of_it_give_the_same_network_logits(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    kept = read_predictions(V1 / "run/predictions/test.parquet")
    for name, model in (("run", V1 / "run"), ("file", FILE)):
        out = tmp_path / f"{name}.parquet"
        said = json.loads(called(model, "--data", V1 / "images", "--out", out, "--json").stdout)
        assert said == {"predictions": str(out), "bad_images": 0}
        found = read_predictions(out)
        assert [i.removeprefix("test/") for i in found.ids] == [i.removeprefix("test/") for i in kept.ids]
        np.testing.assert_array_equal(found.labels, kept.labels)
        np.testing.assert_allclose(found.logits, kept.logits, atol=2e-4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((V1 / "run", "--engine", "ray"), "needs a deployed file"),
        ((FILE, "--workers", "2"), "is for --engine ray"),
        ((FILE, "--views", "flip"), "needs a run folder"),
        ((V1 / "rows.parquet",), "neither a run folder nor an .onnx file"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[object, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(CalibrantError, match=says):
        called(*arguments, "--data", V1 / "images", "--out", tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_pictures_that_cannot_be_read_are_counted_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / "images" / "ash"
    folder.mkdir(parents=True)
    (folder / "good.png").write_bytes((V1 / "images/test/ash/00.png").read_bytes())
    (folder / "bad.png").write_bytes(b"no picture")
    out = tmp_path / "p.parquet"
    said = called(FILE, "--data", tmp_path / "images", "--out", out, "--on-bad-image", "skip").stdout
    assert "1 images could not be read" in said
    assert len(read_predictions(out)) == 1
    assert "bad.png" in out.with_name("p.parquet.bad-images.txt").read_text()
