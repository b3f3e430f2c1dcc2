"""How maps carry over: a class shift that only one set has makes the rich map win there and lose elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.calibration import Calibrator
from calibrant.calibration.cli.calibrate import calibrate
from calibrant.calibration.cli.carrying import OWN, LabelledRows, carried, most_robust
from calibrant.calibration.softmax import softmax

SHIFT = np.array([1.5, 0.0, 0.0, -1.5])


def drawn(rows: int, shift: np.ndarray, seed: int) -> LabelledRows:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 4)) * 4
    return LabelledRows(
        z.astype(np.float32), (softmax(z / 2 + shift).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    )


def test_what_wins_on_its_own_rows_loses_on_rows_without_the_shift() -> None:
    own, other = drawn(600, SHIFT, 0), drawn(3000, -SHIFT, 1)
    found = carried(own, {"other": other}, ("vector",))
    assert found[OWN]["vector"]["high"] < 0 < found["other"]["vector"]["low"]
    by_hand = -np.log(softmax(other.logits / 2)[np.arange(3000), other.labels]).mean()
    assert found["other"]["temperature"]["nll"] == pytest.approx(by_hand, rel=0.2)
    assert found["other"]["temperature"]["minus_temperature"] == 0
    assert most_robust(found) == "temperature"
    alike = carried(own, {"alike": drawn(3000, SHIFT, 2)}, ("vector",))
    assert most_robust(alike) == "vector"


def test_a_method_that_reads_features_takes_part_where_all_sets_have_them() -> None:
    rng = np.random.default_rng(3)
    own, other = (drawn(400, np.zeros(4), s)._replace(features=rng.normal(size=(400, 6))) for s in (0, 1))
    found = carried(own, {"other": other}, ("vector",))
    assert set(found[OWN]) == {"temperature", "vector", "density-aware"}
    assert abs(found["other"]["density-aware"]["minus_temperature"]) < 0.01
    assert "density-aware" not in carried(own, {"other": other._replace(features=None)}, ("vector",))[OWN]


def test_the_command_shows_it_and_takes_the_robust_one(tmp_path: Path) -> None:
    paths = {}
    for name, shift, seed in (("val", SHIFT, 0), ("blurred", -SHIFT, 1)):
        z, y, _ = drawn(300, shift, seed)
        paths[name] = tmp_path / f"{name}.npz"
        np.savez(paths[name], logits=z, labels=y)
    out = tmp_path / "c.json"
    run = [str(paths["val"]), "--method", "auto", "--robust", "--also-on", str(paths["blurred"]), "--out", str(out)]
    result = CliRunner().invoke(calibrate, run)
    assert result.exit_code == 0, result.output
    assert "blurred.npz" in result.output
    assert "Robust: " in result.output
    saved = Calibrator.load(out)
    told = saved.fit["carried"]
    assert set(told) == {OWN, "blurred.npz"}
    worst = {m: max(told[s][m]["minus_temperature"] for s in told) for m in told[OWN]}
    assert saved.method == min(worst, key=worst.__getitem__)
    assert min(told[OWN], key=lambda m: told[OWN][m]["nll"]) in ("vector", "structured")  # what wins on its own rows
    assert worst[saved.method] <= 0 < min(worst["vector"], worst["structured"])
    result = CliRunner().invoke(calibrate, [str(paths["val"]), "--robust"])
    assert "needs --method auto and --also-on" in str(result.exception)
