"""`predict --engine ray`, and the runs of a study, on a real cluster of two nodes, one of which is lost or frozen.

    pytest -m slow -o log_cli=true -o log_cli_level=INFO tests/serve/batch/test_ray_cluster.py

says what was killed when, the pauses and the totals. Parts predict two pictures and sleep until .5 s are over.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.errors import DataError, ModelError
from calibrant.serve.batch import ray_predict
from calibrant.serve.batch.order import Part, Span
from calibrant.serve.batch.predict import predict_model
from calibrant.train.jobs.job import read_result
from calibrant.train.jobs.run import run_jobs
from tests.train.jobs.test_run import Square, ran
from tests.two_nodes import TwoNodes, Watch, two_nodes

pytestmark = [
    pytest.mark.slow,  # 60 s in all
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found and frozen as Linux does"),
]

log = logging.getLogger(__name__)

PARTS, SECONDS = 24, 0.5


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture
def nodes(cluster: TwoNodes) -> Iterator[TwoNodes]:
    yield cluster
    cluster.whole()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory, tiny: ModuleType) -> Path:
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(5)
    for name in tiny.CLASSES:
        (folder / name).mkdir()
        for n in range(PARTS // 2):
            Image.fromarray(rng.integers(0, 255, (20, 24, 3)).astype(np.uint8)).save(folder / name / f"{n:02d}.png")
    return folder


@pytest.fixture(scope="module")
def own(images: Path, model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictions:
    return read_predictions(predict_model(model_file, images, tmp_path_factory.mktemp("own") / "own.parquet"))


def _slow(
    monkeypatch: pytest.MonkeyPatch, seconds: float, deadly: int | None = None, notes: Path | None = None
) -> None:
    """Actors whose parts take so long; one part ends them. What each part took is written to the notes."""

    class Slow(ray_predict.Actor):
        def work(self, span: Span) -> Part:
            start = time.monotonic()
            if span[0] == deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            found = super().work(span)
            time.sleep(max(0.0, start + seconds - time.monotonic()))
            if notes is not None:
                with open(notes, "a") as stream:
                    stream.write(f"{start} {time.monotonic() - start}\n")
            return found

    monkeypatch.setattr(ray_predict, "Actor", Slow)


def _same(out: Path, own: Predictions) -> None:
    """Complete, each row once, in order."""
    got = read_predictions(out)
    assert got.ids == own.ids
    np.testing.assert_allclose(got.logits, own.logits, atol=1e-6)


def _say(what: str, watch: Watch, start: float) -> None:
    at = "" if watch.then_at is None else f" {watch.then_at - start:.1f} s after the start,"
    parts, call = watch.times[-1] - watch.times[0], watch.end - start
    log.info("%s:%s longest pause %.1f s, parts in %.1f s, call %.1f s", what, at, watch.pause, parts, call)


def test_a_node_that_is_killed_costs_what_it_was_at(
    nodes: TwoNodes, images: Path, model_file: Path, own: Predictions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _slow(monkeypatch, SECONDS, notes=tmp_path / "notes.txt")
    out, start = tmp_path / "p.parquet", time.monotonic()
    with Watch(tmp_path / "p.parquet.parts", "*.parquet", 4, nodes.lose) as watch:
        predict_model(model_file, images, out, engine="ray", actors=2, part=2)
    _say("node killed after 4 of 24 parts", watch, start)
    _same(out, own)
    assert watch.then_at is not None
    assert watch.pause < 5.0
    assert sum(at > watch.then_at for at in watch.times) >= PARTS - 6
    took = [tuple(map(float, line.split())) for line in (tmp_path / "notes.txt").read_text().splitlines()]
    work = sum(seconds for began, seconds in took if began + seconds > watch.then_at)
    log.info("%.1f s of work were left for one CPU and took %.1f s", work, watch.end - watch.then_at)
    assert watch.end - watch.then_at <= 1.1 * work


def test_a_node_that_is_frozen_is_not_waited_for(
    nodes: TwoNodes, images: Path, model_file: Path, own: Predictions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _slow(monkeypatch, SECONDS)
    out, start = tmp_path / "p.parquet", time.monotonic()
    with Watch(tmp_path / "p.parquet.parts", "*.parquet", 4, nodes.freeze) as watch:
        predict_model(model_file, images, out, engine="ray", actors=2, part=2)
    _say("node frozen after 4 of 24 parts", watch, start)
    _same(out, own)
    assert watch.then_at is not None
    assert watch.pause < 5.0


def test_the_runs_of_a_study_end_complete_where_a_node_is_killed(nodes: TwoNodes, tmp_path: Path) -> None:
    jobs = [Square(number, SECONDS) for number in range(16)]
    start = time.monotonic()
    with Watch(tmp_path / "runs", "*.json", 4, nodes.lose) as watch:
        run_jobs(jobs, tmp_path, workers=1, engine="ray")
    _say("node killed after 4 of 16 runs", watch, start)
    assert sorted(set(ran(tmp_path))) == list(range(16))
    assert all(read_result(tmp_path, job.key) is not None for job in jobs)
    assert watch.then_at is not None
    assert watch.pause < 5.0


def test_more_workers_than_cpus_run_with_what_there_is(
    nodes: TwoNodes, images: Path, model_file: Path, own: Predictions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _slow(monkeypatch, 0.2)
    out, start = tmp_path / "p.parquet", time.monotonic()
    with Watch(tmp_path / "p.parquet.parts", "*.parquet") as watch:
        predict_model(model_file, images, out, engine="ray", actors=3, part=2)
    _say("three actors on two CPUs, parts of .2 s", watch, start)
    _same(out, own)
    assert watch.end - watch.times[-1] < 2.0


def test_a_part_that_ends_every_actor_is_named_and_the_rest_is_kept(
    nodes: TwoNodes, images: Path, model_file: Path, own: Predictions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    _slow(monkeypatch, 0.05, deadly=10)
    with pytest.raises(ModelError, match=rf"{own.ids[10]}: the part of the images {own.ids[10]} to .* ended 3 actors"):
        predict_model(model_file, images, tmp_path / "p.parquet", engine="ray", actors=2, part=2)
    monkeypatch.undo()
    done = len(list((tmp_path / "p.parquet.parts").glob("*.parquet")))
    assert done > 0
    with caplog.at_level(logging.INFO):
        predict_model(model_file, images, tmp_path / "p.parquet", engine="ray", actors=2, part=2)
    assert f"going on after {done} finished part(s)" in caplog.text
    _same(tmp_path / "p.parquet", own)


def test_the_users_own_mistake_is_said_once(
    nodes: TwoNodes, images: Path, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(ray_predict.Actor):
        def ready(self) -> str:
            return "of another folder"

    class Empty(ray_predict.Actor):
        def ready(self) -> str:
            raise DataError("holds no image", where="/data", fix="look")

    for actor, says in ((Elsewhere, "other files lie here on a machine"), (Empty, "^/data: holds no image; look$")):
        monkeypatch.setattr(ray_predict, "Actor", actor)
        with pytest.raises(DataError, match=says):
            predict_model(model_file, images, tmp_path / "p.parquet", engine="ray", actors=1)


def test_the_command_joins_what_runs_here(
    nodes: TwoNodes, images: Path, model_file: Path, own: Predictions, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "calibrant", "predict", str(model_file), "--data", str(images), "--engine", "ray"]
    found = {}
    for name, more in (("found", []), ("named", ["--ray-address", nodes.address])):
        out = tmp_path / f"{name}.parquet"
        done = subprocess.run(
            [*command, "--out", str(out), "--workers", "3", "--json", *more],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert json.loads(done.stdout)["predictions"] == str(out)
        found[name] = done.stderr
        _same(out, own)
    assert f"joined the cluster of Ray that runs here ({nodes.address})" in found["found"]
    assert "joined" not in found["named"]
    gone: Any = subprocess.run(
        [*command, "--out", str(tmp_path / "x.parquet"), "--ray-address", "127.0.0.1:1"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert gone.returncode == 2
    assert "127.0.0.1:1: no cluster of Ray could be joined" in gone.stderr
    assert "Traceback" not in gone.stderr
