"""`calibrant import`: what it took the columns for is said, and its file is read by the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import read_predictions
from calibrant.commands.import_predictions import import_predictions
from calibrant.errors import CalibrantError

Z = np.random.default_rng(0).normal(size=(40, 3))


def called(*arguments: object) -> str:
    return CliRunner().invoke(import_predictions, list(map(str, arguments)), catch_exceptions=False).stdout


def test_columns_may_be_named(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [f"{a},{b},{c},{'xyz'[i % 3]},h{i % 2},{i}" for i, (a, b, c) in enumerate(Z)]
    table.write_text("\n".join(["s x,s y,s z,who,site,age", *rows]))
    out = tmp_path / "p.parquet"
    said = called(
        table, "--scores", "s *", "--label", "who", "--group", "site", "--out", out, "--train-prior", "uniform"
    )
    assert "40 rows, 40 with a label; 3 classes: x, y, z" in said
    assert "The scores are logits." in said
    assert "not read: age" in said
    found = read_predictions(out)
    assert found.groups["site"][:2] == ("h0", "h1")
    assert found.source.train_prior == pytest.approx((1 / 3,) * 3)
    np.testing.assert_allclose(found.logits, Z, atol=1e-6)


def test_several_arrays_become_one_file_with_names(tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", Z)
    np.save(tmp_path / "labels.npy", np.arange(40) % 3)
    (tmp_path / "names.txt").write_text("ash\nelm\noak\n")
    out = tmp_path / "p.parquet"
    said = json.loads(
        called(
            tmp_path / "logits.npy", tmp_path / "labels.npy", "--classes", tmp_path / "names.txt",
            "--train-prior", "0.5,0.25,0.25", "--out", out, "--json",
        )
    )  # fmt: skip
    assert said["kind"] == "logits"
    assert said["files"] == ["logits.npy", "labels.npy"]
    found = read_predictions(out)
    assert found.class_names == ("ash", "elm", "oak")
    assert found.source.train_prior == (0.5, 0.25, 0.25)
    assert found.labels.tolist() == [i % 3 for i in range(40)]


def test_our_own_file_needs_no_import(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", logits=Z, labels=np.arange(40) % 3)
    called(tmp_path / "p.npz", "--out", tmp_path / "p.parquet")
    with pytest.raises(CalibrantError, match="is a predictions file of Calibrant already"):
        called(tmp_path / "p.parquet", "--out", tmp_path / "q.parquet")
