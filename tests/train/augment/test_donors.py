from __future__ import annotations

import numpy as np
import pytest

from calibrant.errors import ConfigError
from calibrant.train.augment.donors import Donors

LABELS = np.repeat([0, 1, 2, 3], [60, 30, 8, 2]).astype(np.int64)
COUNTS = np.bincount(LABELS).astype(float)  # mean 25: classes 2 and 3 are rare, and lack 17 and 23 of it


def test_frequent_rows_receive_at_the_rate_and_rare_ones_lend_by_what_they_lack() -> None:
    donors = Donors(LABELS, COUNTS, rate=0.4, seed=1)
    rows, images = donors.draw(np.tile(LABELS, 200), 0, np.arange(20000))
    received = np.tile(LABELS, 200)[rows]
    assert set(received) == {0, 1}
    assert abs(len(rows) / 18000 - 0.4) < 0.02
    lent = LABELS[images]
    assert set(lent) == {2, 3}
    assert abs((lent == 3).mean() - 23 / 40) < 0.02
    assert len(set(images)) == 10  # every rare image has its turn


def test_a_row_s_donor_is_a_function_of_its_position() -> None:
    donors = Donors(LABELS, COUNTS, rate=0.5, seed=1)
    rows, images = donors.draw(LABELS, 3, np.arange(100))
    for row, image in list(zip(rows, images, strict=True))[:10]:
        alone = donors.draw(LABELS[row : row + 1], 3, np.array([row]))
        assert (alone[0].tolist(), alone[1].tolist()) == ([0], [image])
    other = donors.draw(LABELS, 4, np.arange(100))
    assert other[0].tolist() != rows.tolist()


def test_ignored_rows_receive_nothing_and_a_rate_of_one_reaches_all_others() -> None:
    labels = np.where(np.arange(100) % 2 == 0, -100, LABELS)
    rows, _ = Donors(LABELS, COUNTS, rate=1.0, seed=0).draw(labels, 0, np.arange(100))
    assert rows.tolist() == [r for r in range(90) if r % 2]


def test_label_mass_is_what_the_labels_of_an_epoch_sum_to() -> None:
    """Rate .5, a fifth of the image: 90 frequent images give 9, of which 17/40 and 23/40 go to the rare classes."""
    mass = Donors(LABELS, COUNTS, rate=0.5, seed=0).label_mass(0.2)
    np.testing.assert_allclose(mass, [54, 27, 8 + 9 * 17 / 40, 2 + 9 * 23 / 40])


def test_classes_of_one_size_have_nothing_to_transplant() -> None:
    with pytest.raises(ConfigError, match="none is rare"):
        Donors(np.arange(40) % 4, np.full(4, 10.0), rate=0.5, seed=0)
