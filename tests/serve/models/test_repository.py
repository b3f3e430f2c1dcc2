"""Which model answers, and what the repository says of those that do not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calibrant.serve.models.folder import version_key
from calibrant.serve.models.repository import Canary, Repository
from calibrant.serve.protocol.errors import ModelNotFound, NotReady


def repository(*versions: str) -> Repository:
    found = Repository()
    for version in versions:
        assert found.add(model(version)) is None
    return found


def model(version: str, sha256: str = "a") -> Any:
    return SimpleNamespace(name="birds", version=version, sha256=sha256)


def test_versions_are_ordered_as_numbers_and_words_come_before_them() -> None:
    assert sorted(["10", "9", "beta"], key=version_key) == ["beta", "9", "10"]
    assert repository("9", "10").get("birds").version == "10"


def test_a_canary_and_a_shadow_answer_only_when_they_are_named() -> None:
    found = repository("1", "2", "3")
    found.canaries["birds"], found.shadows["birds"] = Canary("3", 0.1), [("2", 1.0)]
    assert found.get("birds").version == "1"
    assert found.get("birds", "3").version == "3"


def test_where_only_a_canary_is_left_it_answers() -> None:
    found = repository("3")
    found.canaries["birds"] = Canary("3", 0.1)
    assert found.get("birds").version == "3"


def test_one_that_was_rolled_back_answers_nobody_until_its_bytes_change() -> None:
    found = repository("1", "2")
    found.canaries["birds"] = Canary("2", 0.1)
    found.settle("birds", "2", "a", over=None)
    assert (found.get("birds").version, found.canaries) == ("1", {})
    found.add(model("2"))
    assert (found.get("birds").version, found.canaries) == ("1", {})
    found.add(model("2", "b"))  # tried again, with the share it had
    assert (found.get("birds").version, found.canaries) == ("1", {"birds": Canary("2", 0.1)})


def test_one_that_was_promoted_over_a_newer_one_answers_until_another_comes() -> None:
    found = repository("1", "2", "3")
    found.canaries["birds"] = Canary("1", 0.1)
    found.settle("birds", "1", "a", over=found.newer("birds", "1"))
    assert found.get("birds").version == "1"
    found.add(model("4"))
    assert found.get("birds").version == "4"


def test_a_newer_version_is_a_canary_where_that_is_asked_for_and_the_one_before_gives_way() -> None:
    found = repository("1")
    found.to_try["birds"] = 0.2
    found.add(model("2"))
    assert (found.get("birds").version, found.canaries["birds"]) == ("1", Canary("2", 0.2))
    found.add(model("3"))  # the second was never decided, and must not answer all in its place
    assert (found.get("birds").version, found.canaries["birds"]) == ("1", Canary("3", 0.2))


def test_adding_gives_back_what_is_replaced() -> None:
    found = repository("1")
    old, new = found.get("birds"), SimpleNamespace(name="birds", version="1")
    assert found.add(new) is old  # type: ignore[arg-type]
    assert found.get("birds") is new


def test_an_unloaded_model_is_not_ready_and_an_unknown_one_not_found() -> None:
    found = repository("1", "2")
    found.remove("birds", "1")
    assert found.versions("birds") == ["2"]
    assert found.ready  # as somebody wished
    with pytest.raises(ModelNotFound, match='no version "1"; it has 2'):
        found.get("birds", "1")
    found.remove("birds", "2")
    assert not found.ready
    with pytest.raises(NotReady, match="is not loaded"):
        found.get("birds")
    with pytest.raises(ModelNotFound, match='no model "brids"'):
        repository("1").get("brids")


def test_a_model_that_is_being_loaded_keeps_the_server_from_being_ready() -> None:
    found = repository("1")
    found.states["fish", "1"] = ("LOADING", "")
    assert not found.ready
    assert [(row["name"], row["state"]) for row in found.index()] == [("birds", "READY"), ("fish", "LOADING")]
