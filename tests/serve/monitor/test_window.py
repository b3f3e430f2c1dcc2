from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from calibrant.calibration.monitoring.rolling import LabelledRow
from calibrant.serve.monitor.window import Window

RIGHT, WRONG = LabelledRow(0.8, True, 0.2, 0.5), LabelledRow(0.8, False, 1.6, 0.5)


@pytest.fixture
def window(tiny: ModuleType) -> Window:
    return Window(3, 4, tiny.card())


def test_the_oldest_label_goes_first(window: Window) -> None:
    for id_, row in (("a", WRONG), ("b", RIGHT), ("c", RIGHT), ("d", RIGHT)):
        window.labelled(id_, row)
    assert window.labelled_rows() == [RIGHT] * 3
    assert not window.holds("a")


def test_a_corrected_label_keeps_its_place(window: Window) -> None:
    for id_, row in (("a", WRONG), ("b", RIGHT), ("a", RIGHT), ("c", WRONG)):
        window.labelled(id_, row)
    assert window.labelled_rows() == [RIGHT, RIGHT, WRONG]
    found = window.rolling()
    assert found is not None
    assert found.accuracy.value == pytest.approx(2 / 3)


def test_the_mix_of_classes_forgets_at_the_pace_of_the_window(window: Window) -> None:
    """Six sure rows of one class, of which the window of three keeps the weight of three, and three of another."""
    sure = np.full((2, 4), -100.0)
    sure[0, 0] = sure[1, 3] = 0.0
    for row in (0, 0, 1):
        window.answered(np.tile(sure[row], (3, 1)))
    np.testing.assert_allclose(window.prior(), [0.5, 0, 0, 0.5], atol=1e-9)
    assert window.confidence().tolist() == [1.0] * 3
