"""A server that has one core only, where batches run on the event loop's thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import httpx
import numpy as np
import pytest

from calibrant.serve.config import ModelSpec, ServeConfig
from calibrant.serve.processes.background import running
from calibrant.serve.processes.server import Server


@pytest.fixture(scope="module")
def url(model_file: Path, one_core: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        with one_core():
            server = stack.enter_context(running(model_file))
        yield server.url


def test_batches_run_on_the_loop_where_there_is_one_core(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def turns(cores: int) -> bool:
        monkeypatch.setattr("calibrant.serve.processes.server.available_cores", lambda: cores)
        server = Server(ServeConfig((ModelSpec(model_file),)))
        server.load_models()
        batcher = server.repository.all()[0].batcher
        batcher.close()
        server.inference.close()
        return batcher._soon is not None

    assert turns(1)
    assert not turns(2)


def test_many_callers_get_their_own_answers(url: str, tiny: ModuleType) -> None:
    wrong: list[str] = []

    def caller(seed: int) -> None:
        with httpx.Client(base_url=url) as client:
            for n in range(12):
                pixels = tiny.pictures(1 + (seed + n) % 3, 100 * seed + n)
                body = {"inputs": [{"name": "images", "shape": pixels.shape, "datatype": "UINT8",
                                    "data": pixels.reshape(-1).tolist()}]}  # fmt: skip
                if n % 4 == 3:
                    body["inputs"][0]["shape"] = [1, 2, 3]
                reply = client.post("/v2/models/birds/infer", json=body)
                if n % 4 == 3:
                    if reply.status_code != 400:
                        wrong.append(reply.text)
                    continue
                found = {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in reply.json()["outputs"]}
                if not np.allclose(found["probabilities"], tiny.expected(pixels), atol=1e-6):
                    wrong.append(f"{seed} {n}")

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_request_larger_than_the_cap_and_pictures_are_answered(url: str, tiny: ModuleType) -> None:
    with httpx.Client(base_url=url) as client:
        cap = int(client.get("/v2/models/birds/config").json()["parameters"]["batch_cap"]["string_value"])
        pixels = tiny.pictures(cap + 3, 5)
        body = {"inputs": [{"name": "images", "shape": pixels.shape, "datatype": "UINT8",
                            "data": pixels.reshape(-1).tolist()}]}  # fmt: skip
        reply = client.post("/v2/models/birds/infer", json=body).json()
        found = {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in reply["outputs"]}
        np.testing.assert_allclose(found["probabilities"], tiny.expected(pixels), atol=1e-6)
        stats = client.get("/v2/models/birds/stats").json()["model_stats"][0]
        assert stats["inference_count"] >= cap + 3
        assert client.get("/v2/health/ready").status_code == 200
