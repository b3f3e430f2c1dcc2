"""Offline prediction by actors of Ray. How parts are shared out is tested with a stand-in; the real thing runs where
ray is installed, or where CALIBRANT_RAY_PYTHON names an interpreter that has it and this package."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.commands.predict import predict
from calibrant.errors import ConfigError, DataError, MissingExtra, ModelError
from calibrant.serve.batch import predict as local_predict
from calibrant.serve.batch import ray_predict
from calibrant.serve.batch.predict import predict_model

PYTHON = os.environ.get("CALIBRANT_RAY_PYTHON") or (sys.executable if importlib.util.find_spec("ray") else None)


class RayError(Exception):
    pass


class StandIn:
    """As much of ray as is used: actors live here, and what was handed out is done in a random order."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.options: dict[str, Any] = {}
        self.fail_after: int | None = None
        self.done = 0
        self.random = random.Random(3)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0}

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.options = options
        return lambda cls: SimpleNamespace(remote=lambda *a: _Handle(self, cls(*a)))

    def wait(self, refs: list[Any], timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        chosen = self.random.choice(refs)
        return [chosen], [r for r in refs if r is not chosen]

    def get(self, ref: Any) -> Any:
        if self.fail_after is not None and self.done >= self.fail_after:
            raise RayError("the machine is gone")
        self.done += 1
        return ref()

    def kill(self, handle: Any) -> None:
        self.calls.append("kill")


class _Handle:
    def __init__(self, ray: StandIn, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._actor, name)

        def remote(*arguments: Any) -> Any:
            self._ray.calls.append(name)
            return lambda: method(*arguments)

        return SimpleNamespace(remote=remote)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)  # type: ignore[arg-type]
    return stand_in


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


def test_the_rows_are_those_of_our_own_engine_in_order(
    ray: StandIn, images: Path, model_file: Path, tmp_path: Path
) -> None:
    own = read_predictions(predict_model(model_file, images, tmp_path / "own.parquet"))
    out = predict_model(model_file, images, tmp_path / "ray.parquet", engine="ray", actors=3, part=2)
    got = read_predictions(out)
    assert got.ids == own.ids
    assert got.labels.tolist() == own.labels.tolist()
    assert got.source == own.source
    np.testing.assert_allclose(got.logits, own.logits, atol=1e-6)
    assert ray.calls.count("predict") == 8
    assert ray.calls.count("fingerprint") == ray.calls.count("kill") == 3
    assert ray.options["num_cpus"] == 2  # of eight, for each of three
    assert not list(tmp_path.glob("*.parts"))


def test_a_run_that_lost_its_cluster_goes_on_where_it_was(
    ray: StandIn, images: Path, model_file: Path, tmp_path: Path
) -> None:
    ray.fail_after = 5  # two fingerprints, three parts
    arguments: dict[str, Any] = {"engine": "ray", "actors": 2, "part": 2}
    with pytest.raises(ModelError, match="the machine is gone.*parts that are done are kept"):
        predict_model(model_file, images, tmp_path / "p.parquet", **arguments)
    assert "kill" in ray.calls
    ray.fail_after, ray.calls = None, []
    got = read_predictions(predict_model(model_file, images, tmp_path / "p.parquet", **arguments))
    assert ray.calls.count("predict") == 8 - 3
    own = read_predictions(predict_model(model_file, images, tmp_path / "own.parquet"))
    assert got.ids == own.ids
    np.testing.assert_allclose(got.logits, own.logits, atol=1e-6)


def test_bad_images_are_listed_in_order_or_end_the_run_by_name(
    ray: StandIn, images: Path, model_file: Path, tmp_path: Path, tiny: ModuleType
) -> None:
    for name in (f"{tiny.CLASSES[2]}/1.png", f"{tiny.CLASSES[0]}/3.png"):
        (images / name).write_bytes(b"junk")
    out = predict_model(model_file, images, tmp_path / "p.parquet", engine="ray", actors=2, part=2, on_bad_image="skip")
    listed = (tmp_path / "p.parquet.bad-images.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in listed] == [f"{tiny.CLASSES[0]}/3.png", f"{tiny.CLASSES[2]}/1.png"]
    assert len(read_predictions(out)) == 13
    with pytest.raises(DataError, match=r"(0|2|auk|crane).*png.*not a JPEG.*--on-bad-image skip"):
        predict_model(model_file, images, tmp_path / "q.parquet", engine="ray", actors=2, part=2)


def test_an_actor_that_sees_other_files_is_refused(
    ray: StandIn, images: Path, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_predict.Actor, "fingerprint", lambda self: "of another folder")
    with pytest.raises(DataError, match="other files lie here on a machine"):
        predict_model(model_file, images, tmp_path / "p.parquet", engine="ray", part=2)
    assert local_predict.RAY_PART < local_predict.PART


def test_what_ray_cannot_do_is_said(
    images: Path, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"calibrant\[ray\]"):
        predict_model(model_file, images, tmp_path / "p.parquet", engine="ray")
    for arguments, says in (
        (["--workers", "2"], "is for --engine ray"),
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
    for engine in (["calibrant"], ["ray", "--workers", "2"]):
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
        [*command, "--out", str(tmp_path / "x.parquet"), "--engine", "ray", "--workers", "2"],
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
        [*command, "--out", "s3://models/out.parquet", "--engine", "ray", "--workers", "2"],
        capture_output=True, text=True, timeout=400, cwd=Path(__file__).resolve().parents[3], check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Wrote s3://models/out.parquet" in done.stdout
    bucket.download_file("models", "out.parquet", str(tmp_path / "got.parquet"))
    own = read_predictions(predict_model(model_file, images, tmp_path / "own.parquet"))
    got = read_predictions(tmp_path / "got.parquet")
    assert got.ids == own.ids
    np.testing.assert_allclose(got.logits, own.logits, atol=1e-6)
