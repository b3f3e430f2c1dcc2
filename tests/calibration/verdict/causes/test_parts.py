from dataclasses import replace

import numpy as np

from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.case import Case, JudgedRows
from calibrant.calibration.verdict.causes.parts import parts_off

GROUPS = {"common": (0, 1), "rare": (2, 3), "one": (3,)}


def case(right, rows=400):
    """Four classes; `rows` predicted as each with a claim of .7, of which these shares are right, exactly."""
    probs, labels = [], []
    for k, share in enumerate(right):
        p = np.full((rows, 4), 0.1)
        p[:, k] = 0.7
        probs.append(p)
        labels.append(np.where(np.arange(rows) < round(share * rows), k, (k + 1) % 4))
    s = statistics_of_probabilities(np.concatenate(probs), np.concatenate(labels))
    return Case(evaluate(s), s, ("auk", "bittern", "crane", "dunlin"), GROUPS)


def named(found):
    return [(p.cause.kind, p.cause.evidence["name"]) for p in found]


def test_claims_that_hold_in_each_class_name_none():
    assert parts_off(case([0.7, 0.7, 0.7, 0.7]), margin=0.05) == []


def test_the_class_that_is_off_is_named_with_its_figures():
    (part,) = parts_off(case([0.7, 0.4, 0.7, 0.7]), margin=0.05)
    assert part.cause.text.startswith('Where it says "bittern" it claims 30 points more than it is right')
    assert part.cause.evidence["gap"] == np.float64(0.3).round(9) or abs(part.cause.evidence["gap"] - 0.3) < 1e-9
    assert part.members == {1}


def test_a_group_comes_before_its_classes_and_a_group_of_one_is_its_class():
    assert named(parts_off(case([0.7, 0.7, 0.5, 0.48]), margin=0.05)) == [
        ("group", "rare"), ("class", "dunlin"), ("class", "crane"),
    ]  # fmt: skip


def test_classes_that_are_all_off_alike_are_not_the_cause():
    assert parts_off(case([0.5, 0.5, 0.5, 0.5]), margin=0.05) == []
    assert named(parts_off(case([0.5, 0.55, 0.5, 0.5]), margin=0.05)) == []  # better than the others


def test_off_by_less_than_the_margin_is_left_out():
    assert parts_off(case([0.7, 0.64, 0.7, 0.7], rows=4000), margin=0.07) == []
    assert named(parts_off(case([0.7, 0.64, 0.7, 0.7], rows=4000), margin=0.05)) == [("class", "bittern")]


def test_a_handful_of_rows_is_no_proof():
    assert parts_off(case([0.7, 0.4, 0.7, 0.7], rows=10), margin=0.05) == []


def test_nine_rows_name_no_class_and_one_that_is_everything_is_not_apart_from_others():
    assert "class" not in [p.cause.kind for p in parts_off(case([0.7, 0.0, 0.7, 0.7], rows=9), margin=0.05)]
    assert named(parts_off(case([0.7, 0.0, 0.7, 0.7], rows=20), margin=0.05)) == [("class", "bittern")]
    s = statistics_of_probabilities(np.tile([0.9, 0.1], (500, 1)), np.arange(500) % 2)
    assert parts_off(Case(evaluate(s), s), margin=0.05) == []


def test_the_class_that_stands_in_the_place_of_another_is_named():
    """All rows predicted as "bittern" are labelled "crane"; of "crane" seven of ten are right."""
    off = case([0.7, 0.0, 0.7, 0.7])
    z = np.log(np.repeat(0.1 + 0.6 * np.eye(4), 400, axis=0))
    labels = np.concatenate([np.where(np.arange(400) < round(400 * s), k, (k + 1) % 4)
                             for k, s in enumerate([0.7, 0.0, 0.7, 0.7])])  # fmt: skip
    (part,) = parts_off(replace(off, rows=lambda: JudgedRows(z, z, labels, len(labels))), margin=0.05)
    assert part.cause.evidence["labelled"] == "crane"
    assert part.cause.text.endswith('Most of them are labelled "crane": are the classes in the right order?')
    assert "labelled" not in parts_off(off, margin=0.05)[0].cause.evidence
