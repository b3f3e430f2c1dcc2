"""`calibrant calibrate by-group`: a folder of calibrators, and what each brings beside the common one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration import Calibrator
from calibrant.calibration.calibrators.by_group import Correction, Corrections
from calibrant.calibration.cli.by_group import _file_names
from calibrant.calibration.cli.calibrate import calibrate
from calibrant.calibration.softmax import log_softmax, softmax
from calibrant.errors import ConfigError, DataError

TEMPERATURES = {"Köln/Süd": 1.0, "Berlin": 4.0}


def written(path: Path, rows: int, seed: int, **columns: list[str]) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    z = rng.normal(0, 3, (rows, 3)).astype(np.float32)
    sites = rng.choice(list(TEMPERATURES), rows)
    p = softmax(z / np.array([TEMPERATURES[s] for s in sites])[:, None])
    y = (p.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    table = {"logits": z.tolist(), "label": y, "group_site": sites, **columns}
    pq.write_table(pa.table(table), path)
    return path


def call(*words: object) -> str:
    result = CliRunner().invoke(calibrate, [str(w) for w in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_each_group_gets_a_file_and_its_own_temperature(tmp_path: Path) -> None:
    rows, out = written(tmp_path / "val.parquet", 800, 0), tmp_path / "sites"
    found = json.loads(call("by-group", rows, "--out", out, "--json"))
    assert found["column"] == "site"
    assert set(found["files"]) == set(TEMPERATURES)
    assert sorted(p.name for p in out.iterdir()) == sorted([*found["files"].values(), "common.json", "groups.json"])
    common = Calibrator.load(out / "common.json")
    own = {site: Calibrator.load(out / file) for site, file in found["files"].items()}
    for site, calibrator in own.items():
        affine = calibrator.as_affine()
        assert affine is not None
        assert affine.a[0] == pytest.approx(1 / TEMPERATURES[site], rel=0.25)
        assert calibrator.fit["group"] == site
    fresh = PredictionsFile.open(written(tmp_path / "test.parquet", 4000, 1)).read()
    groups, z, y = np.array(fresh.groups["site"]), fresh.logits, fresh.labels
    zeta = np.empty(z.shape)
    for site, calibrator in own.items():
        zeta[groups == site] = calibrator.logits(z[groups == site])

    def nll(u: np.ndarray) -> float:
        return float(-log_softmax(u)[np.arange(len(y)), y].mean())

    gained = nll(common.logits(z)) - nll(zeta)
    assert gained > 0.03
    judged = found["judged"]["all rows"]
    assert judged["difference"] == pytest.approx(-gained, abs=0.04)
    assert judged["high"] < 0
    (tmp_path / "run" / "predictions").mkdir(parents=True)
    rows.rename(tmp_path / "run" / "predictions" / "val.parquet")
    text = call("by-group", tmp_path / "run", "--column", "group_site", "--method", "auto", "--out", out, "--overwrite")
    assert "Berlin" in text
    assert "own NLL" in text


def test_what_it_cannot_take_is_said(tmp_path: Path) -> None:
    rows = written(tmp_path / "val.parquet", 100, 2, group_eye=["left", "right"] * 50)
    run = CliRunner()
    several = run.invoke(calibrate, ["by-group", str(rows), "--out", str(tmp_path / "o")])
    assert isinstance(several.exception, ConfigError)
    assert "--column" in str(several.exception)
    wrong = run.invoke(calibrate, ["by-group", str(rows), "--column", "sit", "--out", str(tmp_path / "o")])
    assert 'no group column "sit"' in str(wrong.exception)
    np.savez(tmp_path / "plain.npz", logits=np.random.default_rng(0).normal(size=(50, 3)), labels=np.arange(50) % 3)
    none = run.invoke(calibrate, ["by-group", str(tmp_path / "plain.npz"), "--out", str(tmp_path / "o")])
    assert isinstance(none.exception, DataError)
    assert "no group column" in str(none.exception)
    assert not (tmp_path / "o").exists()


def test_a_folder_of_another_call_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, out = written(tmp_path / "val.parquet", 200, 3), tmp_path / "sites"
    call("by-group", rows, "--out", out)
    monkeypatch.delenv("CALIBRANT_OVERWRITE", raising=False)
    again = CliRunner().invoke(calibrate, ["by-group", str(rows), "--out", str(out)])
    assert "holds a result already" in str(again.exception)


def test_file_names_are_safe_and_different() -> None:
    groups = Corrections({v: Correction(1.0, np.zeros(2)) for v in ("a/b", "a_b", "A_B", "../..", "common")}, {})
    found = _file_names(groups.of)
    assert found["a/b"] == "a_b.json"
    assert len({v.lower() for v in found.values()}) == 5
    assert all(not v.startswith(".") and "/" not in v and v != "common.json" for v in found.values())


def test_a_map_that_reads_features_is_no_common_map(tmp_path: Path) -> None:
    path = written(tmp_path / "v.parquet", 60, 0)
    call = ["by-group", str(path), "--column", "site", "--method", "density-aware", "--out", str(tmp_path / "out")]
    with pytest.raises(ConfigError, match="density-aware reads features, which the common map of groups"):
        CliRunner().invoke(calibrate, call, catch_exceptions=False)
    assert not (tmp_path / "out").exists()
