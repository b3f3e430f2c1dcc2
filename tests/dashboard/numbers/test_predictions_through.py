"""Results are kept by what lies on disk."""

from __future__ import annotations

import os
from pathlib import Path

from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers.predictions_through import Scored

from ..conftest import write_run


def test_the_same_files_are_the_same_and_a_calibrator_or_a_newer_file_makes_another(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rows=30)
    folder_index = scan(tmp_path)
    best = folder_index.runs[0].best()
    assert best is not None
    (calibrator,) = folder_index.calibrators_for(folder_index.runs[0], best)
    plain, through = Scored.of(best), Scored.of(best, calibrator)
    assert plain == Scored.of(best)
    assert hash(plain) == hash(Scored.of(best))
    assert plain != through
    os.utime(calibrator.path, (1, 1))
    assert through != Scored.of(best, calibrator)
    os.utime(best.path, (1, 1))
    assert plain != Scored.of(best)
