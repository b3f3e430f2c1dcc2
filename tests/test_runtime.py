"""onnxruntime's two distributions: none, one, both, or half of one."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType

import pytest

from calibrant.runtime import RuntimeMissing, installed, runtime


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The distributions that pip is made to know."""
    names: set[str] = set()

    def version(name: str) -> str:
        if name not in names:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    return names


def test_without_one_the_line_names_both_extras(monkeypatch: pytest.MonkeyPatch, known: set[str]) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # import fails
    with pytest.raises(RuntimeMissing, match=r"not installed; run: pip install 'calibrant\[cpu\]'.*calibrant\[gpu\]"):
        runtime()


def test_half_a_module_is_told_with_its_repair(monkeypatch: pytest.MonkeyPatch, known: set[str]) -> None:
    known.add("onnxruntime-gpu")
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))  # what a removed twin leaves
    with pytest.raises(
        RuntimeMissing, match="in part only; run: pip install --force-reinstall --no-deps onnxruntime-gpu$"
    ):
        runtime()


def test_two_broken_ones_are_both_named(monkeypatch: pytest.MonkeyPatch, known: set[str]) -> None:
    known.update(("onnxruntime", "onnxruntime-gpu"))
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))
    with pytest.raises(RuntimeMissing, match="only one of onnxruntime and onnxruntime-gpu may be installed"):
        runtime()
    assert installed() == ["onnxruntime", "onnxruntime-gpu"]


def test_a_whole_module_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ModuleType("onnxruntime")
    whole.InferenceSession = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", whole)
    assert runtime() is whole
