"""Which methods are tried at a size."""

from __future__ import annotations

from calibrant.calibration.calibrators.estimation.candidates import POOLED, candidates_for


def methods(rows: int, classes: int, *, single: bool = False) -> list[str]:
    return [m.method for m in candidates_for(rows, classes, single=single).members]


def test_few_classes_have_a_weak_map_beside_them() -> None:
    found = candidates_for(200, 10)
    assert found.beside is not None
    assert found.beside.options == {"penalty": 0.1}
    assert 0 < found.part < 0.5
    assert not found.pooled
    assert not found.heavy
    assert candidates_for(200, 10, single=True).beside is None


def test_many_classes_are_pooled_from_five_rows_a_class_on() -> None:
    assert candidates_for(500, 100).members == POOLED
    assert candidates_for(500, 100).pooled
    assert not candidates_for(499, 100).pooled
    assert "venn-abers" in methods(505, 101)  # and not at a hundred, where it would double the time


def test_rare_classes_have_venn_abers_beside_the_others_or_among_them_where_one_is_taken() -> None:
    found = candidates_for(200, 100)
    assert found.beside is not None
    assert found.beside.method == "venn-abers"
    assert "venn-abers" not in methods(200, 100)
    assert "venn-abers" in methods(200, 100, single=True)


def test_fewer_are_tried_where_a_fit_takes_long() -> None:
    assert len(methods(2000, 1000)) < len(methods(200, 100))
    assert candidates_for(2000, 1000).heavy
