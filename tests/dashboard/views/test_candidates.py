"""Where the Try it page takes its pictures from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from calibrant.dashboard.server import UPLOAD_MEGABYTES
from calibrant.dashboard.views import candidates
from calibrant.errors import DataError

from .conftest import Page, words


def test_samples_come_from_a_run_of_the_same_classes_three_at_a_time(page: Page, folder: Path) -> None:
    first, second = (words(page("try", folder, sample=str(n))).replace("\\", "") for n in (1, 2))
    assert first.count("  \nlabel: **leaf-") == second.count("  \nlabel: **leaf-") == 3
    assert first != second


def test_without_a_run_of_its_classes_a_file_has_no_samples(page: Page, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "leaves/model.onnx", tmp_path)
    assert "There are no samples" in words(page("try", tmp_path))


def test_a_picture_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(DataError, match=f"is larger than {UPLOAD_MEGABYTES} MB"):
        candidates._decoded(b"x" * ((UPLOAD_MEGABYTES << 20) + 1), "big.png")
