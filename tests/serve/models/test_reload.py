"""Models that come, change and go: what is loaded when, and what is left in peace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.serve.models import reload
from calibrant.serve.models.model import file_stamp
from calibrant.serve.models.reload import Lifecycle
from calibrant.serve.models.repository import Repository
from calibrant.serve.protocol.errors import BadInput


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
