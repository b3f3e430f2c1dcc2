"""Who sends large bodies without end, and how much longer the others wait beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from bench import serve_attacks, serve_soak
from calibrant.serve.processes.background import Running, running

SIDE = 64
SECONDS, CALLERS, TRIES = 1.5, 4, 8  # a machine that others use is not calm each time
MOST = 256 << 20  # bytes, beside what the server has to begin with: 64 MiB of body, and as much again to be used again


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    weights = np.random.default_rng(3).normal(0, 0.1, (serve_soak.CLASSES, 3 * SIDE * SIDE)).astype("f4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve_soak, "SIZE", SIDE)
        patch.setattr(serve_soak, "WEIGHTS", weights)
        patch.setenv("OMP_NUM_THREADS", "1")
        model = serve_soak.write_model(tmp_path_factory.mktemp("floods") / "soak.onnx", "")
        with running(model, arguments=["--threads", "1", "--quiet"]) as server:
            serve_attacks.good(server, 1.0, CALLERS, SIDE)
            yield server


@pytest.fixture(scope="module")
def bodies() -> dict[str, Any]:
    return serve_attacks.bodies(SIDE)


@pytest.mark.slow  # five seconds each
@pytest.mark.parametrize(
    "name",
    [
        "lists, 60 MB", "lists, 30 MB", "binary data, 60 MB", "a picture of 60 MB, none", "a form of 60 MB",
        "17 x 64 MiB announced", "500 x 64 MiB announced",
    ],
)  # fmt: skip
def test_the_others_wait_at_most_twice_as_long(
    name: str, server: Running, bodies: dict[str, Any], tmp_path: Path
) -> None:
    """99th percentiles, interleaved with calm; the best of some tries."""
    text, address, more = bodies[name]
    (tmp_path / "body").write_bytes(text)
    process = psutil.Process(server.pid)
    begun, ratios, answers = process.memory_info().rss, [], []
    for _ in range(TRIES):
        _, calm, failed = serve_attacks.good(server, SECONDS, CALLERS, SIDE)
        assert failed == 0
        beside = (
            serve_attacks.attacker(server, tmp_path / "body", address, more)
            if text
            else serve_attacks.announced(server, int(name.split()[0]))
        )
        with beside as told:
            _, most, failed = serve_attacks.good(server, SECONDS, CALLERS, SIDE)
            assert process.memory_info().rss - begun < MOST
        assert failed == 0
        answers += told
        ratios.append(most / calm)
        if min(ratios) <= 2.0 and (answers or not text):
            break
    assert min(ratios) <= 2.0, ratios
    assert {status[0] for status in answers} == ({"4"} if text else set())
