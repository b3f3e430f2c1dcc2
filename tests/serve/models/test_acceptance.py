"""A file answers its own golden rows, and takes another's place only where it takes the same questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from calibrant.artifacts import golden_rows
from calibrant.serve.models.acceptance import Contract, NotAccepted, check_successor
from calibrant.serve.models.model import Model


def of(model: Model) -> Contract:
    return Contract.of(model.session)


@pytest.fixture
def load() -> Iterator[Any]:
    models: list[Model] = []

    def loaded(path: Path) -> Model:
        models.append(Model.load(path, threads=1, seconds=0.0))
        return models[-1]

    yield loaded
    for model in models:
        model.batcher.close()


@pytest.mark.parametrize("options", [{}, {"float_input": True}, {"batch": 1}, {"runtime": True}])
def test_a_file_with_its_own_answers_is_taken_and_with_others_refused(
    options: dict[str, Any], tmp_path: Path, tiny: ModuleType, load: Any
) -> None:
    """The answers are the numpy formula's, not the file's."""
    truth = golden_rows.record(tiny.expected, tiny.card())
    load(tiny.write(tmp_path / "true.onnx", tiny.card(golden=truth), **options))
    other = golden_rows.record(lambda rows: tiny.expected(rows, temperature=1.9), tiny.card())
    with pytest.raises(NotAccepted, match="does not answer its own golden rows: probabilities are off by 0.0"):
        load(tiny.write(tmp_path / "other.onnx", tiny.card(golden=other), **options))


def test_the_same_inputs_and_classes_take_over(tmp_path: Path, tiny: ModuleType, load: Any) -> None:
    old, new = (load(tiny.write(tmp_path / f"{name}.onnx")) for name in "ab")
    check_successor(of(new), of(old))
    knobs = load(tiny.write(tmp_path / "knobs.onnx", runtime=True))
    check_successor(of(knobs), of(old))  # more inputs that nobody needs to send
    check_successor(of(old), of(knobs))


def test_another_input_or_class_is_refused_with_what_it_is(tmp_path: Path, tiny: ModuleType, load: Any) -> None:
    old = load(tiny.write(tmp_path / "old.onnx"))
    floats = load(tiny.write(tmp_path / "floats.onnx", float_input=True))
    with pytest.raises(NotAccepted, match=r'input "images" was UINT8 .* and is FP32'):
        check_successor(of(floats), of(old))
    names = load(tiny.write(tmp_path / "names.onnx", tiny.card(classes=("auk", "bittern", "crow", "dunlin"))))
    with pytest.raises(NotAccepted, match='class 2 was "crane" and is "crow"'):
        check_successor(of(names), of(old))
    bare = load(tiny.write(tmp_path / "bare.onnx", with_card=False))
    with pytest.raises(NotAccepted, match="its classes are unknown"):
        check_successor(of(bare), of(old))


def test_a_card_without_golden_rows_is_taken(tmp_path: Path, tiny: ModuleType, load: Any) -> None:
    assert load(tiny.write(tmp_path / "a.onnx", replace(tiny.card(), golden=None))).name == "birds"
