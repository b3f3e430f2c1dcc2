"""The ending picks the reader; what is not read is said."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from calibrant.artifacts.foreign.formats import ENDINGS, read_columns
from calibrant.errors import FormatError


def test_pickles_and_unknown_endings_are_refused(tmp_path: Path) -> None:
    for name, says in (("p.pkl", "pickle, which could run code"), ("p.joblib", "pickle"), ("p.xlsx", "known are")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(FormatError, match=says):
            read_columns(tmp_path / name)


def test_no_ending_has_two_readers() -> None:
    assert len(set(ENDINGS)) == len(ENDINGS)


def test_text_may_be_packed(tmp_path: Path) -> None:
    texts = {
        "p.csv.gz": "p_a,label\n0.25,1\n",
        "p.tsv.gz": "p_a\tlabel\n0.25\t1\n",
        "p.jsonl.gz": '{"p_a": 0.25, "label": 1}\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
        found = read_columns(tmp_path / name).values
        assert {k: v.tolist() for k, v in found.items()} == {"p_a": [0.25], "label": [1]}
        for damaged in (b"plain", gzip.compress(text.encode())[:20]):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(FormatError, match=name):
                read_columns(tmp_path / name)
    (tmp_path / "p.npz.gz").write_bytes(b"x")
    with pytest.raises(FormatError, match="no format"):
        read_columns(tmp_path / "p.npz.gz")
