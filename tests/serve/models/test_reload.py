"""Models that come, change and go: what is loaded when, and what is left in peace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import ConfigError
from calibrant.serve.cli import serve
from calibrant.serve.models import reload
from calibrant.serve.models.acceptance import NotAccepted
from calibrant.serve.models.model import file_stamp
from calibrant.serve.models.reload import Lifecycle
from calibrant.serve.models.repository import Repository
from calibrant.serve.processes.background import running
from calibrant.serve.protocol.errors import BadInput, PutAway


class Batcher:
    def __init__(self) -> None:
        self.idle, self.closed = True, False

    def close(self) -> None:
        self.closed = True


def model(path: Path, name: str = "birds", version: str = "1") -> Any:
    return SimpleNamespace(
        name=name, version=version, session=SimpleNamespace(path=path), stamp=file_stamp(path),
        sha256=path.read_text(), active=0, batcher=Batcher(),
    )  # fmt: skip


class House:
    """A repository with one model of a file, and every load noted."""

    def __init__(self, path: Path) -> None:
        path.write_text("first")
        self.path, self.loads, self.fails = path, [], False  # type: ignore[var-annotated]
        self.repository = Repository()
        self.lifecycle = Lifecycle(self.repository, self.load)
        first = model(path)
        self.repository.add(first)
        self.lifecycle.watch(first)

    def load(self, path: Path, name: str, version: str) -> Any:
        self.loads.append(path.read_text())
        if self.fails:
            raise BadInput("damaged")
        return model(path, name, version)

    @property
    def served(self) -> str:
        return str(self.repository.get("birds").sha256)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "model.onnx")


def test_a_file_that_did_not_change_is_not_loaded_again(house: House) -> None:
    asyncio.run(house.lifecycle.poll())
    assert house.loads == []


def test_a_changed_file_takes_the_place_of_the_old_model(house: House) -> None:
    house.path.write_text("second one")
    asyncio.run(house.lifecycle.poll())
    assert (house.served, house.lifecycle.reloads) == ("second one", 1)


def test_a_file_that_is_still_being_written_is_left_for_the_next_look(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep: Callable[[float], Any] = asyncio.sleep

    async def written_meanwhile(seconds: float) -> None:
        if seconds == 0.2:
            house.path.write_text("second one, and more of it")
        await sleep(0)

    monkeypatch.setattr(reload.asyncio, "sleep", written_meanwhile)
    house.path.write_text("second")
    asyncio.run(house.lifecycle.poll())
    assert house.loads == []
    monkeypatch.undo()
    asyncio.run(house.lifecycle.poll())
    assert house.served == "second one, and more of it"


def test_a_file_that_cannot_be_loaded_is_tried_once_and_the_old_model_goes_on(house: House) -> None:
    house.fails = True
    house.path.write_text("damaged")
    for _ in range(3):
        asyncio.run(house.lifecycle.poll())
    assert house.loads == ["damaged"]
    assert (house.served, house.lifecycle.failures) == ("first", 1)
    house.fails = False
    house.path.write_text("mended again")
    asyncio.run(house.lifecycle.poll())
    assert house.served == "mended again"


def test_a_file_that_was_taken_away_leaves_its_model(house: House) -> None:
    house.path.unlink()
    asyncio.run(house.lifecycle.poll())
    assert house.loads == []
    assert house.served == "first"


@pytest.mark.parametrize("busy", ["a request that was accepted", "a batch that runs"])
def test_an_old_model_ends_when_its_last_request_is_answered(house: House, busy: str) -> None:
    async def change() -> None:
        old: Any = house.repository.get("birds")
        if busy.startswith("a request"):
            old.active = 1
        else:
            old.batcher.idle = False
        house.path.write_text("second one")
        await house.lifecycle.poll()
        assert house.served == "second one"  # at once, for new requests
        await asyncio.sleep(0.1)
        assert not old.batcher.closed
        old.active, old.batcher.idle = 0, True
        for _ in range(200):
            if old.batcher.closed:
                break
            await asyncio.sleep(0.01)
        assert old.batcher.closed

    asyncio.run(change())


def test_only_models_that_the_server_was_started_with_can_be_loaded(house: House) -> None:
    with pytest.raises(BadInput, match='was not started with a model "fish"'):
        asyncio.run(house.lifecycle.load("fish"))


def test_a_file_that_is_gone_is_told_once_and_counted_until_it_is_back(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.path.rename(house.path.with_suffix(".away"))
    for _ in range(3):
        asyncio.run(house.lifecycle.poll())
    assert [r.message for r in caplog.records if "is gone" in r.message] == [
        f"{house.path} is gone; birds version 1 goes on from memory"
    ]
    assert house.lifecycle.missing == {("birds", "1")}
    house.path.with_suffix(".away").rename(house.path)
    asyncio.run(house.lifecycle.poll())
    assert house.lifecycle.missing == set()
    assert house.loads == []  # it is the file that was loaded


class Folder:
    """A lifecycle of a folder, in which a file's text is its model, and "bad" one that cannot be loaded."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.loads = folder, []  # type: ignore[var-annotated]
        self.repository = Repository()
        self.lifecycle = Lifecycle(self.repository, self.load, folders=[folder], **options)

    def load(self, path: Path, name: str | None, version: str) -> Any:
        self.loads.append((name, version))
        if path.read_text() == "bad":
            raise NotAccepted("does not answer", where=path)
        made = model(path, str(name), version)
        made.size, made.used = path.stat().st_size, float(len(self.loads))
        return made

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    @property
    def ready(self) -> list[tuple[str, str]]:
        return [(row["name"], row["version"]) for row in self.repository.index() if row["state"] == "READY"]


def test_a_folder_is_loaded_and_what_comes_to_it(tmp_path: Path) -> None:
    house = Folder(tmp_path)
    house.put("birds@1.onnx", "one")
    house.put("fish.onnx", "bad")

    async def serve() -> None:
        await house.lifecycle.start([])
        assert house.ready == [("birds", "1")]
        assert (house.repository.ready, house.lifecycle.refusals) == (True, 1)  # the bad one takes nobody along
        house.put("birds@2.onnx", "two")
        house.put("fish.onnx", "good now")
        await house.lifecycle.poll()
        assert house.ready == [("birds", "1"), ("birds", "2"), ("fish", "1")]
        assert house.repository.get("birds").version == "2"
        house.put("birds@3.onnx", "bad")
        await house.lifecycle.poll()
        await house.lifecycle.poll()
        assert house.repository.get("birds").version == "2"
        assert house.loads.count(("birds", "3")) == 1  # not again until it changes
        await house.lifecycle.unload("fish")
        await house.lifecycle.poll()
        assert ("fish", "1") not in house.ready  # as somebody wished
        await house.lifecycle.load("fish")
        assert ("fish", "1") in house.ready

    asyncio.run(serve())


def test_with_explicit_control_only_what_is_asked_for_is_loaded(tmp_path: Path) -> None:
    house = Folder(tmp_path, explicit=True)
    house.put("birds.onnx", "one")
    house.put("fish.onnx", "one")

    async def serve() -> None:
        await house.lifecycle.start([], ["fish"])
        assert house.ready == [("fish", "1")]
        house.put("trees.onnx", "came later")
        await house.lifecycle.poll()
        assert house.ready == [("fish", "1")]
        await house.lifecycle.load("trees")
        assert house.ready == [("fish", "1"), ("trees", "1")]
        with pytest.raises(ConfigError, match='no model "cats" in the folders'):
            await Folder(tmp_path, explicit=True).lifecycle.start([], ["cats"])

    asyncio.run(serve())


def test_what_was_not_asked_for_is_put_away_and_comes_back(tmp_path: Path) -> None:
    house = Folder(tmp_path, memory=25)
    for name in ("a", "b", "c"):
        house.put(f"{name}.onnx", "x" * 10)

    async def serve() -> None:
        await house.lifecycle.start([])
        assert (house.ready, house.repository.ready) == ([("a", "1"), ("b", "1")], True)
        assert len(house.loads) == 2  # the third one never was
        house.repository.get("a").used = 9.0
        with pytest.raises(PutAway) as away:
            house.repository.get("c")
        await asyncio.gather(*(house.lifecycle.bring(away.value.key) for _ in range(3)))
        assert house.ready == [("a", "1"), ("c", "1")]
        assert (house.loads[2:], house.lifecycle.put_away) == ([("c", "1")], 1)
        assert house.repository.get("c").version == "1"

    asyncio.run(serve())


def test_the_newest_version_answers_though_it_is_put_away(tmp_path: Path) -> None:
    house = Folder(tmp_path, memory=25)
    for version in ("1", "2"):
        house.put(f"a@{version}.onnx", "x" * 10)

    async def serve() -> None:
        await house.lifecycle.start([])
        house.put("b.onnx", "x" * 10)
        house.repository.get("a", "1").used = 9.0
        await house.lifecycle.poll()
        assert house.ready == [("a", "1"), ("b", "1")]
        with pytest.raises(PutAway, match="version 2"):
            house.repository.get("a")
        assert house.repository.get("a", "1").version == "1"

    asyncio.run(serve())


def test_an_empty_folder_says_how_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NAME/VERSION/model.onnx"):
        asyncio.run(Folder(tmp_path).lifecycle.start([]))


def test_a_version_that_was_refused_does_not_come_in_by_a_restart(tmp_path: Path, tiny: ModuleType) -> None:
    """Nor by a worker that takes the place of another: all that starts looks at what lies there anew."""
    folder, log = tmp_path / "models", "the file cannot be served"
    folder.mkdir()
    tiny.write(folder / "birds@1.onnx")
    tiny.write(folder / "birds@2.onnx", tiny.card(classes=("auk", "bittern", "crow", "dunlin")))
    tiny.write(folder / "birds@3.onnx")
    for arguments, versions, answering in (([], {"1", "3"}, "3"), (["--accept-changes"], {"1", "2", "3"}, "3")):
        with running(folder, arguments=["--threads", "1", *arguments]) as server:
            index = httpx.post(server.url + "/v2/repository/index", timeout=60).json()
            ready = {each["version"] for each in index if each["state"] == "READY"}
            assert (ready, log in server.log.read_text()) == (versions, not arguments)
            pixels = tiny.pictures(1)
            entry = {
                "name": "images",
                "shape": list(pixels.shape),
                "datatype": "UINT8",
                "data": pixels.ravel().tolist(),
            }
            for path, status in (("", 200), ("/versions/2", 404 if not arguments else 200)):
                reply = httpx.post(f"{server.url}/v2/models/birds{path}/infer", json={"inputs": [entry]}, timeout=60)
                assert reply.status_code == status
                if not path:
                    assert reply.json()["model_version"] == answering
    said = CliRunner().invoke(serve, [str(folder), "--check"]).output
    assert "birds version 2 would NOT be served" in said
    assert 'class 2 was "crane" and is "crow"' in said


def test_a_file_that_was_changed_since_its_export_is_named_in_the_log(tmp_path: Path, tiny: ModuleType) -> None:
    """A little, so that it answers its golden rows."""
    for name, hashes in (("whole", {}), ("changed", {"graph": "0" * 64})):
        path = tiny.write(tmp_path / f"{name}.onnx")
        true = OnnxFile.open(path).hashes()
        tiny.write(path, tiny.card(hashes={**true, **hashes}))
        with running(path, arguments=["--threads", "1"]) as server:
            assert ("its graph changed since the export" in server.log.read_text()) == (name == "changed")
        said = CliRunner().invoke(serve, [str(path), "--check"]).output
        assert ("its graph CHANGED since the export" in said) == (name == "changed")
