"""Files of independent labels, from several labels a row to a calibrator that knows what it is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.read import Asked
from calibrant.calibration import fit
from calibrant.calibration.independent.files import base_rates_of, evaluate_labels, fit_labels_file, is_independent
from calibrant.errors import ConfigError

NAMES = ["cat", "dog", "elm"]


@pytest.fixture
def multi(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    z = rng.normal(-0.5, 1.5, (400, 3))
    y = rng.random((400, 3)) < 1 / (1 + np.exp(-z))
    np.savez(tmp_path / "multi.npz", logits=3 * z, labels=y.astype(int), class_names=NAMES)
    return tmp_path / "multi.npz"


def test_several_labels_a_row_are_seen(multi: Path, tmp_path: Path) -> None:
    assert is_independent(multi, None)
    np.savez(tmp_path / "one.npz", logits=np.random.default_rng(0).normal(size=(50, 3)), labels=np.arange(50) % 3)
    assert not is_independent(tmp_path / "one.npz", None)
    assert is_independent(tmp_path / "one.npz", Asked(outcome="independent"))
    assert not is_independent(tmp_path / "missing.npz", None)
    (tmp_path / "other.jsonl").write_text("{}\n")
    assert not is_independent(tmp_path / "other.jsonl", None)


def test_sigmoids_and_logits_give_the_same(multi: Path, tmp_path: Path) -> None:
    arrays = np.load(multi)
    p = 1 / (1 + np.exp(-arrays["logits"]))
    np.savez(tmp_path / "p.npz", probabilities=p, labels=arrays["labels"], class_names=NAMES)
    one, two = (evaluate_labels([f])[0].evaluation.mean for f in (multi, tmp_path / "p.npz"))
    assert one["ece"].value == pytest.approx(two["ece"].value, abs=1e-5)


def test_a_calibrator_of_the_file_brings_the_error_down_and_knows_its_rows(multi: Path, tmp_path: Path) -> None:
    fit_labels_file(multi, "temperature").save(tmp_path / "c.json")
    before, after = evaluate_labels([multi], [tmp_path / "c.json"])
    assert after.evaluation.mean["ece"].value < before.evaluation.mean["ece"].value / 2
    assert (before.in_sample, after.in_sample) == (False, True)


def test_a_calibrator_of_classes_is_refused(multi: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    fit("temperature", rng.normal(size=(90, 3)), np.arange(90) % 3).save(tmp_path / "c.json")
    with pytest.raises(ConfigError, match="one class a row"):
        evaluate_labels([multi], [tmp_path / "c.json"])


def test_base_rates_in_order_or_by_name() -> None:
    assert base_rates_of("0.1, 0.2,0.3", NAMES) == [0.1, 0.2, 0.3]
    assert base_rates_of("elm=0.3,cat=0.1,dog=0.2", NAMES) == [0.1, 0.2, 0.3]
    with pytest.raises(ConfigError, match="other labels"):
        base_rates_of("elm=0.3,cat=0.1,fox=0.2", NAMES)
    with pytest.raises(ConfigError, match="gives no base rates"):
        base_rates_of("uniform", NAMES)
