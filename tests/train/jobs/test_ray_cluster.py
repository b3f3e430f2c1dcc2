"""The same jobs as tasks of Ray, where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from calibrant.errors import DataError, MissingExtra
from calibrant.train.jobs.job import read_result
from calibrant.train.jobs.run import run_jobs
from tests.train.jobs.test_run import Square, ran

HERE = importlib.util.find_spec("ray") is not None


@pytest.mark.skipif(HERE, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match="calibrant.ray."):
        run_jobs([Square(1)], tmp_path, workers=1, engine="ray")


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="Ray is not installed")
def test_a_cluster_runs_what_is_missing_and_passes_errors_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    run_jobs([Square(1)], tmp_path, workers=1)
    run_jobs([Square(n) for n in range(4)], tmp_path, workers=1, engine="ray")
    assert ran(tmp_path) == [0, 1, 2, 3]
    assert [read_result(tmp_path, f"square{n}")["square"] for n in range(4)] == [0, 1, 4, 9]  # type: ignore[index]
    with pytest.raises(DataError, match="has no place here"):
        run_jobs([Square(-1)], tmp_path, workers=1, engine="ray")
