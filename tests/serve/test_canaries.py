"""Canaries that decide themselves, on a real server; and what they keep."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from calibrant.serve.canaries import FILE, Canaries
from calibrant.serve.config import Share
from calibrant.serve.models.repository import Canary, Repository
from calibrant.serve.processes.background import running
from calibrant.serve.protocol.errors import BadInput, NotFound

CANARY = "/v2/repository/models/birds/canary"


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.1)


def _rules(path: Path, **more: Any) -> Path:
    """What no busy machine can change: latency and failures within wide margins."""
    rules = {"labels": 40, "requests": 40, "accuracy_loss": 0.3, "ece_gain": 0.3, "slow_gain": 0.95,
             "failed_gain": 0.3, **more}  # fmt: skip
    path.write_text("[canary_rules]\n" + "".join(f"{k} = {v}\n" for k, v in rules.items()))
    return path


def _ask(client: httpx.Client, body: bytes, requests: int, right: Callable[[str], bool]) -> list[str]:
    """Labels for each: the answer itself, or another class where the version is not `right`."""
    labels, versions = [], []
    for _ in range(requests):
        reply = client.post("/v2/models/birds/infer", content=body, headers={"content-type": "application/json"}).json()
        output = next(o for o in reply["outputs"] if o["name"] == "probabilities")
        said = max(range(4), key=output["data"].__getitem__)
        version = reply["model_version"]
        versions.append(version)
        labels.append({"id": reply["id"], "label": said if right(version) else (said + 1) % 4})
    assert client.post("/v2/models/birds/feedback", json={"labels": labels}).json()["accepted"] == requests
    return versions


def _body(tiny: ModuleType) -> bytes:
    pixels = tiny.pictures(1)
    entry = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    return json.dumps({"inputs": [entry]}).encode()


@pytest.mark.slow  # 12 s
def test_a_canary_that_errs_is_rolled_back_and_one_that_does_not_is_promoted_in_every_worker(
    tmp_path: Path, tiny: ModuleType
) -> None:
    folder, body = tmp_path / "models", _body(tiny)
    for version in ("1", "2"):
        (folder / "birds" / version).mkdir(parents=True)
        tiny.write(folder / "birds" / version / "model.onnx", tiny.card(description=f"version {version}"))
    log, rules = tmp_path / "log", _rules(tmp_path / "serve.toml")
    arguments = ["--threads", "1", "--workers", "2", "--feedback-log", str(log), "--canary", "birds@newest=0.5",
                 "--canary-auto", "--config", str(rules), "--reload", "0.2"]  # fmt: skip
    with running(folder, arguments=arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get(CANARY).json()["canary"]["version"] == "2"

        def rolled_back() -> bool:
            _ask(client, body, 60, lambda version: version != "2")
            return client.get(CANARY).json()["canary"] is None

        _until(rolled_back)
        (done,) = client.get(CANARY).json()["decided"]
        assert (done["version"], done["state"]) == ("2", "rolled back")
        assert "accuracy 0.0 % against 100.0 %" in done["reason"] or "calibration alarm" in done["reason"]
        assert 'calibrant_canary_decisions_total{worker="0",decision="rolled back"} 1' in client.get("/metrics").text
        _until(lambda: set(_ask(client, body, 40, lambda _: True)) == {"1"})  # in every worker
        assert "birds version 2 is rolled back: " in server.log.read_text()
        (folder / "birds" / "3").mkdir()
        tiny.write(folder / "birds" / "3" / "model.onnx", tiny.card(description="version 3"))
        _until(lambda: (client.get(CANARY).json()["canary"] or {}).get("version") == "3")

        def promoted() -> bool:
            _ask(client, body, 60, lambda _: True)
            return client.get(CANARY).json()["canary"] is None

        _until(promoted)
        assert [d["state"] for d in client.get(CANARY).json()["decided"]] == ["rolled back", "promoted"]
        _until(lambda: set(_ask(client, body, 40, lambda _: True)) == {"3"})


@pytest.mark.slow  # 4 s
def test_an_operator_decides(tmp_path: Path, tiny: ModuleType) -> None:
    files = [f"birds@{v}={tiny.write(tmp_path / f'{v}.onnx')}" for v in ("1", "2")]
    arguments = ["--threads", "1", "--canary", "birds@1=0.5", "--admin"]
    with (
        running(*files, arguments=arguments) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.post(CANARY + "/decision", json={"decision": "perhaps"}).status_code == 400
        found = client.post(CANARY + "/decision", json={"decision": "promote"}).json()
        assert (found["canary"], found["decided"][0]["over"]) == (None, ["2"])
        replies = [client.post("/v2/models/birds/infer", content=_body(tiny)) for _ in range(8)]
        assert {reply.json()["model_version"] for reply in replies} == {"1"}
        assert client.post(CANARY + "/decision", json={"decision": "promote"}).status_code == 404


def _repository(**hashes: str) -> Repository:
    found = Repository()
    for version, sha256 in hashes.items():
        model: Any = SimpleNamespace(name="birds", version=version[1:], sha256=sha256, trial=None, monitor=None)
        found.add(model)
    return found


def test_a_decision_holds_for_the_bytes_it_was_made_about(tmp_path: Path) -> None:
    share = [Share("birds", "2", 0.1)]
    first = Canaries(_repository(v1="a", v2="b"), None, folder=tmp_path)
    first.begin(share)
    with pytest.raises(BadInput):
        first.ask("birds", "maybe")
    first.ask("birds", "roll back")
    assert json.loads((tmp_path / FILE).read_text())["birds"][0]["sha256"] == "b"
    with pytest.raises(NotFound):
        first.ask("birds", "promote")
    again = Canaries(_repository(v1="a", v2="b"), None, folder=tmp_path)
    again.begin(share)
    assert again.repository.canaries == {}
    assert again.repository.get("birds").version == "1"
    other = Canaries(_repository(v1="a", v2="c"), None, folder=tmp_path)
    other.begin(share)
    assert list(other.repository.canaries) == ["birds"]


def test_a_file_of_decisions_that_cannot_be_read_is_told_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text("{")
    found = Canaries(_repository(v1="a", v2="b"), None, folder=tmp_path)
    found.begin([Share("birds", "newest", 0.1)])
    assert found.repository.canaries["birds"].version == "2"
    assert "earlier decisions about canaries are lost" in caplog.text


def test_the_newest_that_is_still_on_trial_stays_so_over_a_restart(tmp_path: Path) -> None:
    """Also where a newer one was rolled back: it would answer all."""
    share = [Share("birds", "newest", 0.2)]
    first = Canaries(_repository(v1="a", v2="b", v3="c"), None, folder=tmp_path)
    first.begin(share)
    first.ask("birds", "roll back")  # 3
    assert first.repository.get("birds").version == "2"
    again = Canaries(_repository(v1="a", v2="b", v3="c"), None, folder=tmp_path)
    again.begin(share)
    assert again.repository.canaries == {}  # 2 answered before 3 came
    again.repository.canaries["birds"] = Canary("2", 0.2)
    again.ask("birds", "roll back")
    changed = Canaries(_repository(v1="a", v2="new", v3="c"), None, folder=tmp_path)
    changed.begin(share)
    assert changed.repository.canaries == {"birds": Canary("2", 0.2)}
    assert changed.repository.get("birds").version == "1"
