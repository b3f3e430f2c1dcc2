"""`calibrant predict`: one command for a run and for a deployed file, and what each refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration.cli.evaluate import evaluate
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


def _shards(folder: Path) -> Path:
    """The pictures of the golden folder, in two Parquet files."""
    folder.mkdir()
    pictures = sorted((V1 / "images/test").rglob("*.png"))
    for part in (0, 1):
        some = pictures[part::2]
        columns = {
            "key": [f"{p.parent.name}/{p.name}" for p in some],
            "image": [p.read_bytes() for p in some],
            "label": [p.parent.name for p in some],
        }
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=4)
    return folder


def test_model_shards_and_predictions_may_lie_in_object_storage(tmp_path: Path, bucket: Any) -> None:
    """Parquet in and Parquet out, and what evaluate says of it is what it says of the same files here."""
    shards = _shards(tmp_path / "shards")
    bucket.upload_file(str(FILE), "models", "june/birds.onnx")
    for path in shards.iterdir():
        bucket.upload_file(str(path), "models", f"june/shards/{path.name}")
    arguments = (
        "s3://models/june/birds.onnx",
        "--data",
        "s3://models/june/shards",
        "--out",
        "s3://models/june/p.parquet",
    )
    said = json.loads(called(*arguments, "--json").stdout)
    assert said == {"predictions": "s3://models/june/p.parquet", "bad_images": 0}
    called(FILE, "--data", shards, "--out", tmp_path / "p.parquet")
    bucket.download_file("models", "june/p.parquet", str(tmp_path / "from.parquet"))
    there, own = read_predictions(tmp_path / "from.parquet"), read_predictions(tmp_path / "p.parquet")
    assert there.ids == own.ids
    np.testing.assert_array_equal(there.logits, own.logits)
    figures = []
    for path in ("s3://models/june/p.parquet", str(tmp_path / "p.parquet")):
        result = CliRunner().invoke(evaluate, [path, "--json"], catch_exceptions=False)
        (model,) = json.loads(result.stdout)["models"]
        figures.append((model["name"].rpartition("/")[2], model["metrics"]))
    assert figures[0] == figures[1]
    with pytest.raises(CalibrantError, match="s3://models/june/p.parquet: is there already"):
        CliRunner(env={"CALIBRANT_OVERWRITE": "0"}).invoke(predict, list(arguments), catch_exceptions=False)


def test_unreadable_pictures_of_a_bucket_are_listed_beside_the_predictions(tmp_path: Path, bucket: Any) -> None:
    good = (V1 / "images/test/ash/00.png").read_bytes()
    for name, content in (("good.png", good), ("bad.png", b"no picture")):
        bucket.put_object(Bucket="models", Key=f"pictures/ash/{name}", Body=content)
    arguments = (FILE, "--data", "s3://models/pictures", "--out", "s3://models/p.parquet", "--on-bad-image", "skip")
    assert "s3://models/p.parquet.bad-images.txt lists them" in called(*arguments).stdout
    listing = bucket.get_object(Bucket="models", Key="p.parquet.bad-images.txt")["Body"].read()
    assert listing.startswith(b"ash/bad.png\t")
