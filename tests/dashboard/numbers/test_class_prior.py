"""Class priors that numbers can be asked for under, and where they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.dashboard.folder.artifacts import Run
from calibrant.dashboard.numbers.class_prior import _of_rows_here, served_labels
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.errors import ConfigError

NAMES = ("a", "b", "c=d")


def test_served_labels_are_counted_over_files_with_the_same_classes(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    for version, names in (("1", NAMES), ("2", NAMES), ("3", ("x", "y", "z"))):
        model = Model("m", version, version * 64, names)
        ids = [f"{version}-{i}" for i in range(4)]
        writer.predictions(model, ids, [1.0, 2.0, 3.0, 4.0], np.zeros((4, 3), np.float32))
        writer.labels("m", ids[:3], [0, 0, 2])
    writer.close()
    assert served_labels(tmp_path, NAMES) == [4.0, 0.0, 2.0]
    with pytest.raises(ConfigError, match="no label"):
        served_labels(tmp_path, ("other", "names"))


def test_counts_and_shares_are_one_prior(run: tuple[Run, Scored, Scored]) -> None:
    """Numbers are kept by their prior, and a page names it: what is typed as 3 and as 3/75 is the same."""
    predictions = run[1].path
    counts = [3.0] + [8.0] * 9
    found = _of_rows_here(counts, predictions)
    assert found == pytest.approx([n / 75 for n in counts])
    assert found == _of_rows_here([2 * n for n in counts], predictions)
