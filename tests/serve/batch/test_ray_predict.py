"""Offline prediction by actors of Ray on a cluster of its own; runs where ray is installed, or where
CALIBRANT_RAY_PYTHON names an interpreter that has it and this package. Machines that are lost: test_ray_cluster.py."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.commands.predict import predict
from calibrant.errors import ConfigError, MissingExtra
from calibrant.serve.batch import predict as local_predict
from calibrant.serve.batch import ray_predict
from calibrant.serve.batch.predict import predict_model

PYTHON = os.environ.get("CALIBRANT_RAY_PYTHON") or (sys.executable if importlib.util.find_spec("ray") else None)


@pytest.fixture
def images(tmp_path: Path, tiny: ModuleType) -> Path:
    rng = np.random.default_rng(5)
    for name in tiny.CLASSES[:3]:
        (tmp_path / "data" / name).mkdir(parents=True)
        for n in range(5):
            Image.fromarray(rng.integers(0, 255, (20 + n, 24, 3)).astype(np.uint8)).save(
                tmp_path / "data" / name / f"{n}.png"
            )
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("nodes", "actors", "spans", "wanted"),
    [
        ([8.0], 3, 9, (3, 2)),
        ([8.0], None, 9, (2, 4)),
        ([2.0], None, 9, (1, 2)),
        ([1.0, 1.0], 1, 9, (1, 1)),  # two CPUs, but no machine has them both
        ([1.0, 1.0], 3, 9, (3, 1)),  # one of them waits for a machine
        ([4.0, 4.0, 0.0], None, 9, (2, 4)),
        ([6.0, 4.0], None, 9, (3, 3)),
        ([16.0], None, 2, (2, 8)),
        ([0.0], None, 9, (1, 1)),
    ],
)
def test_actors_are_as_large_as_lets_all_of_them_find_a_place(
    nodes: list[float], actors: int | None, spans: int, wanted: tuple[int, int]
) -> None:
    assert ray_predict.layout(nodes, actors, spans) == wanted
    assert local_predict.RAY_PART < local_predict.PART


def test_what_ray_cannot_do_is_said(
    images: Path, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"calibrant\[ray\]"):
        predict_model(model_file, images, tmp_path / "p.parquet", engine="ray")
    for arguments, says in (
        (["--workers", "2"], "is for --engine ray"),
        (["--ray-address", "local"], "is for --engine ray"),
        (["--engine", "ray"], "needs a deployed file"),
    ):
        model = tmp_path if "--engine" in arguments else model_file
        found = CliRunner().invoke(predict, [str(model), "--data", str(images), *arguments])
        assert isinstance(found.exception, ConfigError)
        assert says in str(found.exception)


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="ray is not installed (pip install 'calibrant[ray]')")
def test_actors_of_ray_give_the_file_of_our_own_engine(
    images: Path, model_file: Path, tmp_path: Path, tiny: ModuleType
) -> None:
    assert PYTHON is not None
    (images / tiny.CLASSES[1] / "0.png").write_bytes(b"junk")
    command = [PYTHON, "-m", "calibrant", "predict", str(model_file), "--data", str(images)]
    here = Path(__file__).resolve().parents[3]
    outs = {}
    for engine in (["calibrant"], ["ray", "--workers", "2", "--ray-address", "local"]):
        outs[engine[0]] = out = tmp_path / f"{engine[0]}.parquet"
        done = subprocess.run(
            [*command, "--out", str(out), "--on-bad-image", "skip", "--engine", *engine],
            capture_output=True, text=True, timeout=400, cwd=here, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert "1 images could not be read" in done.stdout
    own, got = (read_predictions(outs[engine]) for engine in ("calibrant", "ray"))
    assert got.ids == own.ids
    assert got.source == own.source
    np.testing.assert_allclose(got.logits, own.logits, atol=1e-6)
    bad = subprocess.run(
        [*command, "--out", str(tmp_path / "x.parquet"), "--engine", "ray", "--workers", "2", "--ray-address", "local"],
        capture_output=True, text=True, timeout=400, cwd=here, check=False,
    )  # fmt: skip
    assert bad.returncode == 2
    assert "0.png" in bad.stderr
    assert "Traceback" not in bad.stderr


@pytest.mark.slow  # 30 s
@pytest.mark.skipif(PYTHON is None, reason="ray is not installed (pip install 'calibrant[ray]')")
def test_actors_of_ray_read_a_bucket_and_the_result_goes_there(
    images: Path, model_file: Path, tmp_path: Path, bucket: Any
) -> None:
    """On an S3 server of this machine; each actor copies model and pictures for itself."""
    assert PYTHON is not None
    bucket.upload_file(str(model_file), "models", "birds.onnx")
    for path in sorted(images.rglob("*.png")):
        bucket.upload_file(str(path), "models", f"pictures/{path.relative_to(images).as_posix()}")
    command = [PYTHON, "-m", "calibrant", "predict", "s3://models/birds.onnx", "--data", "s3://models/pictures"]
    done = subprocess.run(
        [*command, "--out", "s3://models/out.parquet", "--engine", "ray", "--workers", "2", "--ray-address", "local"],
        capture_output=True, text=True, timeout=400, cwd=Path(__file__).resolve().parents[3], check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Wrote s3://models/out.parquet" in done.stdout
    bucket.download_file("models", "out.parquet", str(tmp_path / "got.parquet"))
    own = read_predictions(predict_model(model_file, images, tmp_path / "own.parquet"))
    got = read_predictions(tmp_path / "got.parquet")
    assert got.ids == own.ids
    np.testing.assert_allclose(got.logits, own.logits, atol=1e-6)
