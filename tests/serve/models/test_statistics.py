"""Triton's statistics: a request counts once, when it is answered, and alike in every stage."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from calibrant.serve.models.batch_runner import BatchRunner
from calibrant.serve.models.job import Job
from calibrant.serve.models.statistics import BOUNDS, Counts, Histogram
from calibrant.serve.processes.background import running

STAGES = ("success", "queue", "compute_input", "compute_infer", "compute_output")


def stats_of(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(url + "/v2/models/birds/stats").json()["model_stats"][0]
    return found


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_counts_are_the_same_in_all_stages_at_concurrency(model_file: Path, tiny: ModuleType, workers: int) -> None:
    """NVIDIA's perf_analyzer gives up where they are not."""
    picture = io.BytesIO()
    Image.fromarray(tiny.pictures(1)[0]).save(picture, "PNG")
    body = {"inputs": [{"name": "images", "datatype": "UINT8", "shape": [2, 16, 16, 3]}]}
    good = {"inputs": [{**body["inputs"][0], "data": tiny.pictures(2).ravel().tolist()}]}
    arguments = ["--threads", "1", *(["--workers", "2"] if workers == 2 else [])]
    with running(model_file, arguments=arguments) as server, httpx.Client(base_url=server.url) as client:

        def ask(number: int) -> int:
            if number % 5 == 1:
                return client.post("/v2/models/birds/predict", content=picture.getvalue()).status_code
            wrong = number % 5 == 2  # has no data: refused before it counts as anything but a failure
            return client.post("/v2/models/birds/infer", json=body if wrong else good).status_code

        with ThreadPoolExecutor(16) as pool:
            codes = list(pool.map(ask, range(300)))
        stats = stats_of(server.url)
    assert sorted(set(codes)) == [200, 400]
    inference = stats["inference_stats"]
    assert {stage: inference[stage]["count"] for stage in STAGES} == dict.fromkeys(STAGES, codes.count(200))
    assert stats["inference_count"] == 180 * 2 + 60
    assert stats["execution_count"] <= 240
    parts = sum(inference[stage]["ns"] for stage in STAGES[1:])
    assert 0 < parts <= inference["success"]["ns"]


class Slow:
    """A session that answers with its input."""

    batched = True
    path = Path("slow.onnx")

    def run(self, feeds: dict[str, np.ndarray], names: tuple[str, ...]) -> dict[str, np.ndarray]:
        return {name: feeds["x"] for name in names}


def test_the_time_of_a_run_is_shared_out_among_its_requests() -> None:
    counts = Counts()
    jobs = [Job({"x": np.ones((n, 1))}, n, ("y",), lambda job: None) for n in (1, 2, 3)]
    BatchRunner(Slow(), counts, 8).run(jobs)  # type: ignore[arg-type]
    took = jobs[0].finished - jobs[0].started
    shares = [(job.input_ns, job.infer_ns) for job in jobs]
    assert len(set(shares)) == 1
    assert sum(a + b for a, b in shares) == pytest.approx(took * 1e9, abs=6)
    assert 3 * shares[0][0] == pytest.approx(counts.input_ns, abs=3)
    assert shares[0][0] > 0


def test_a_histogram_counts_up_to_and_with_its_bounds() -> None:
    found = Histogram()
    for seconds in (0.0005, 0.001, 0.0011, 100.0):
        found.add(seconds)
    assert (found.counts[0], found.counts[1], found.counts[-1]) == (2, 1, 1)
    assert len(found.counts) == len(BOUNDS) + 1
    assert found.total == pytest.approx(100.0026)
