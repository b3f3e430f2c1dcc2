"""What a browser sends is read as `calibrant import` reads it, and stays below the folder."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("streamlit")

from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.widgets.upload import keep
from calibrant.errors import DataError


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


Z = np.random.default_rng(0).normal(size=(40, 3))


def test_an_upload_is_a_run_of_the_folder(tmp_path: Path) -> None:
    out, found = keep(tmp_path, "mine.npz", npz(logits=Z, labels=np.arange(40) % 3), None)
    assert found.kind == "logits"
    assert out == tmp_path / "uploaded/mine.parquet"
    (run,) = scan(tmp_path).runs
    assert (run.name, run.predictions[0].rows) == ("uploaded", 40)


@pytest.mark.parametrize("name", ["../../evil.npz", "..\\evil.npz", "/etc/evil.npz"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    out, _ = keep(tmp_path / "runs", name, npz(logits=Z, labels=np.arange(40) % 3), None)
    assert out == tmp_path / "runs/uploaded/evil.parquet"


def test_what_cannot_be_told_is_asked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few"):
        keep(tmp_path, "p.npz", npz(scores=Z[:5], labels=np.arange(5) % 3), None)
    assert not (tmp_path / "uploaded").exists()
    assert keep(tmp_path, "p.npz", npz(scores=Z[:5], labels=np.arange(5) % 3), "logits")[1].kind == "logits"
