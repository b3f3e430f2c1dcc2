"""`calibrant doctor` tells sound from absent from wrong, and runs the real thing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibrant.commands import doctor as module
from calibrant.commands.root import cli


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(cli, ["doctor", "--json", *arguments])
    return result.exit_code, {f["what"]: f for f in json.loads(result.output)}


def test_a_sound_machine_is_all_ok_or_absent_and_the_self_tests_ran() -> None:
    code, found = findings()
    assert code == 0
    assert {f["state"] for f in found.values()} <= {"ok", "absent"}
    assert "differs from numpy by" in found["self-test: run a model"]["found"]
    assert found["self-test: evaluate"]["found"].startswith("ECE of a calibrated model in 0.0 ..")


def test_two_runtimes_at_once_are_wrong_and_have_their_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda: ["onnxruntime", "onnxruntime-gpu"])
    monkeypatch.setattr(module.importlib.metadata, "version", lambda _: "1.0")
    code, found = findings("--no-self-test")
    assert code == 1
    assert found["onnxruntime"]["state"] == "wrong"
    assert found["onnxruntime"]["fix"] == "pip uninstall onnxruntime onnxruntime-gpu; pip install 'calibrant[gpu]'"


def test_an_extra_in_part_is_wrong_and_one_not_there_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(*gone: str) -> Any:
        return lambda name, *rest: None if name in gone else find(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without("altair", "netcal"))
    code, found = findings("--no-self-test")
    assert code == 1
    assert found["extra dashboard"]["state"] == "wrong"
    assert found["extra dashboard"]["found"] == "without altair"
    assert found["extra calibration"]["state"] == "absent"
    assert found["extra calibration"]["found"] == "pip install 'calibrant[calibration]'"


def test_a_full_disk_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_LOW_DISK", float("inf"))
    assert module._disk(tmp_path).state == "wrong"
