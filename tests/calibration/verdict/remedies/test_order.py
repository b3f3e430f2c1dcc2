import numpy as np
import pytest

from calibrant.calibration.verdict.front import verdict
from calibrant.calibration.verdict.remedies.order import order_found


def rows(n, *, classes=4, seed=0):
    """Calibrated probabilities, right in three of four rows, and labels drawn by them."""
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), y


def test_the_order_is_what_more_than_half_of_a_class_are_labelled():
    predicted = np.repeat([0, 1, 2], 20)
    labels = np.concatenate([np.repeat([1, 0], [11, 9]), np.repeat([0, 1], [11, 9]), np.full(20, 2)])
    assert order_found(predicted, labels, 3).tolist() == [1, 0, 2]
    labels[20] = 1  # ten of twenty are not more than half
    assert order_found(predicted, labels, 3) is None


def test_a_class_taken_for_another_is_confusion_and_nine_rows_tell_nothing():
    both_one = np.full(40, 1)
    assert order_found(np.repeat([0, 1], 20), both_one, 2) is None
    assert order_found(np.repeat([0, 1], 9), np.repeat([1, 0], 9), 2) is None
    assert order_found(np.repeat([0, 1], 10), np.repeat([1, 0], 10), 2).tolist() == [1, 0]


def test_classes_that_stand_for_each_other_are_put_in_order_and_nothing_else_is_fitted():
    p, y = rows(4000)
    names = ("auk", "bittern", "crane", "dunlin")
    swapped = np.array([0, 2, 1, 3])[y]
    found = verdict(p, swapped, class_names=names)
    (remedy,) = found.remedies
    assert (found.level, found.causes[0].kind, remedy.kind, remedy.command) == ("not-trusted", "class", "order", None)
    right, now = (f"{100 * (p.argmax(axis=1) == labels).mean():.0f}" for labels in (y, swapped))
    assert remedy.text.startswith(
        f'Put the classes in the order of the labels ("bittern" is "crane", "crane" is "bittern"; {right} % are right '
        f"then, {now} % now): the ECE goes from "
    )
    assert remedy.gives["level"] == "trusted"


@pytest.mark.parametrize("classes", [2, 5])
def test_labels_counted_from_one_are_found_though_the_ranking_is_lost(classes):
    p, y = rows(4000, classes=classes)
    found = verdict(p, (y + 1) % classes)
    assert [r.kind for r in found.remedies] == ["order"]
    assert found.causes[0].kind == "ranking"
    assert found.remedies[0].gives["level"] == "trusted"
    assert ("and 2 more" in found.remedies[0].text) == (classes == 5)


def test_guesses_without_any_order_have_none():
    p, _ = rows(3000)
    found = verdict(p, np.random.default_rng(1).integers(0, 4, 3000))
    assert (found.causes[0].kind, found.remedies) == ("ranking", ())
