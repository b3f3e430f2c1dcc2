"""Two models of independent labels on the same rows: means by hand, labels unknown, files in any order, coverage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import calibrant
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.cli.evaluate import evaluate
from calibrant.calibration.independent.compare import compare_label_files, compare_labels
from calibrant.calibration.independent.files import fit_labels_file
from calibrant.calibration.independent.measure import measure_labels
from calibrant.errors import DataError

NAMES = ["cat", "dog", "elm"]


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 1.2, (n, 1))  # labels of a row go together
    z = common + rng.normal(-0.5, 1.0, (n, 3))
    return z, (rng.random((n, 3)) < 1 / (1 + np.exp(-z))).astype(np.int8)


def test_means_are_those_of_evaluate_also_where_labels_are_unknown() -> None:
    z, y = sample(300, 0)
    y[::4, 1] = -1
    y[:250, 2] = -1
    weights = np.linspace(0.5, 2.0, 300)
    found = compare_labels(2 * z, 0.5 * z, y, weights=weights)
    for logits, side in ((2 * z, "first"), (0.5 * z, "second")):
        mean = measure_labels(logits, y, NAMES, weights=weights).mean
        for key in ("nll", "brier", "ece"):
            assert getattr(found[key], side) == pytest.approx(mean[key].value, rel=1e-9)


def test_an_interval_by_hand() -> None:
    """Two labels, all known: Student's of the row means."""
    z, y = np.random.default_rng(1).normal(size=(80, 2)), np.random.default_rng(2).integers(0, 2, (80, 2))
    found = compare_labels(z, 3 * z, y.astype(np.int8))["brier"]
    squared = [((1 / (1 + np.exp(-s * z)) - y) ** 2).mean(1) for s in (1, 3)]
    d = squared[1] - squared[0]
    assert found.difference == pytest.approx(d.mean())
    half = 1.990 * d.std(ddof=1) / np.sqrt(80)  # t of 79 degrees
    assert found.low == pytest.approx(d.mean() - half, abs=2e-3)
    assert found.high == pytest.approx(d.mean() + half, abs=2e-3)
    assert not compare_labels(z, z, y.astype(np.int8))["nll"].clear


def test_where_hardly_a_row_is_wrong_nothing_is_told() -> None:
    y = np.tile(np.array([[0, 1, 1]], np.int8), (50, 1))
    z = np.where(y == 1, 4.0, -4.0)
    assert compare_labels(z, 2 * z, y)["nll"].low is None


@pytest.mark.slow  # 4 s
def test_the_interval_holds_the_true_difference() -> None:
    many, labels = sample(200_000, 99)
    truth = compare_labels(many, 2 * many, labels)["nll"].difference
    inside = 0
    for seed in range(400):
        d = compare_labels(*(s * sample(150, seed)[0] for s in (1, 2)), sample(150, seed)[1])["nll"]
        assert d.low is not None
        assert d.high is not None
        inside += d.low <= truth <= d.high
    assert 0.91 * 400 <= inside <= 0.985 * 400


def write(path: Path, z: np.ndarray, y: np.ndarray, order: np.ndarray) -> Path:
    np.savez(path, logits=z[order], labels=y[order], ids=np.array([f"r{i}" for i in order]), class_names=NAMES)
    return path


def test_files_are_matched_by_id_and_the_command_shows_them(tmp_path: Path) -> None:
    z, y = sample(200, 3)
    a = write(tmp_path / "a.npz", 3 * z, y, np.arange(200))
    b = write(tmp_path / "b.npz", z, y, np.random.default_rng(0).permutation(200))
    expected = compare_labels((3 * z).astype(np.float32), z.astype(np.float32), y)
    found = compare_label_files([a, b])["b.npz"]
    assert found["nll"].difference == pytest.approx(expected["nll"].difference, abs=1e-6)
    assert found["nll"].clear
    fit_labels_file(a, "temperature").save(tmp_path / "t.json")
    done = CliRunner().invoke(
        evaluate, [str(a), str(b), "--calibrator", str(tmp_path / "t.json"), "--compare", "--json"]
    )
    assert done.exit_code == 0, done.output
    differences = json.loads(done.output)["differences"]
    assert list(differences) == ["a.npz, t", "b.npz", "b.npz, t"]
    assert differences["b.npz"]["nll"]["difference"] == pytest.approx(expected["nll"].difference, abs=1e-6)
    text = CliRunner().invoke(evaluate, [str(a), str(b), "--compare"]).output
    assert "minus a.npz" in text
    told = calibrant.compare(a, b)
    assert told["nll"].difference == found["nll"].difference
    through = calibrant.compare(a, Calibrator.load(tmp_path / "t.json"))
    assert through["nll"].difference == pytest.approx(differences["a.npz, t"]["nll"]["difference"])
    (tmp_path / "other").mkdir()
    same = write(tmp_path / "other" / "a.npz", 2 * z, y, np.arange(len(y)))
    names = [f"{tmp_path.name}/a", "other/a"]
    text = CliRunner().invoke(evaluate, [str(a), str(same), "--compare", "--report", str(tmp_path / "r.html")]).output
    assert f"{names[0]}: " in text
    assert f"{names[1]}: " in text
    assert list(compare_label_files([a, same], [tmp_path / "t.json"])) == [f"{names[0]}, t", names[1], f"{names[1]}, t"]
    assert f"Calibration of {names[0]}, {names[1]}" in (tmp_path / "r.html").read_text()
    with pytest.raises(DataError, match="same labelled ids"):
        compare_label_files([a, write(tmp_path / "c.npz", z[:100], y[:100], np.arange(100))])
