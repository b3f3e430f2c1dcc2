from __future__ import annotations

import numpy as np

from calibrant.serve.monitor.known_labels import KnownLabels


def test_it_says_what_a_dict_would_say() -> None:
    """Thousands of labels given, given anew and taken back, so that old ones are sorted in on the way."""
    rng, known, expected = np.random.default_rng(0), KnownLabels(), dict[str, int]()
    for _ in range(400):
        given = {f"row {k}": int(rng.integers(12)) for k in rng.integers(0, 6000, 20)}
        known.update(given)
        expected |= given
        for k in rng.integers(0, 6000, 2):
            known.discard(f"row {k}")
            expected.pop(f"row {k}", None)
        assert len(known) == len(expected)
    assert {f"row {k}": known.get(f"row {k}") for k in range(6000)} == {
        f"row {k}": expected.get(f"row {k}") for k in range(6000)
    }
    assert "row 1" in known or "row 1" not in expected
    assert "row of another" not in known


def test_a_label_takes_twelve_bytes_in_the_long_run() -> None:
    known = KnownLabels()
    for start in range(0, 20_000, 500):
        known.update({f"{start + k}": k % 3 for k in range(500)})
    assert len(known) == 20_000
    assert known._keys.nbytes + known._labels.nbytes <= 12 * 20_000
    assert len(known._new) <= 1024
