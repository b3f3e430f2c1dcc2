"""One pass equals the direct computation, shards add up, and files are read in bounded memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration import evaluate, metrics
from calibrant.calibration.calibrators import fit
from calibrant.calibration.formula import Formula
from calibrant.calibration.metrics.binned_errors import ece_of
from calibrant.calibration.metrics.rows import read_rows
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics import accumulate
from calibrant.calibration.statistics import statistics as statistics_module
from calibrant.calibration.statistics.accumulate import Accumulator, statistics_of, statistics_of_probabilities
from calibrant.calibration.statistics.bins import equal_width_index
from calibrant.calibration.statistics.grid import grid
from calibrant.calibration.statistics.sidecar import load, sidecar_path
from calibrant.calibration.statistics.statistics import for_file
from calibrant.errors import CalibrantError, ConfigError, DataError, FormatError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"


def sample(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(rows, classes)) * 3).astype(np.float32)
    y = (softmax(z * 0.7).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return z, y


def write(path: Path, z: np.ndarray, y: np.ndarray, prior: tuple[float, ...] | None = None) -> None:
    source = Source(tuple(f"c{k}" for k in range(z.shape[1])), train_prior=prior)
    Predictions(tuple(map(str, range(len(y)))), y.astype(np.int64), z, source).write(path)


@pytest.mark.parametrize("bins", [*range(1, 101)])
def test_every_equal_width_setting_is_a_union_of_cells(bins: int) -> None:
    rng = np.random.default_rng(bins)
    g = grid(100)
    near = np.concatenate([g.edges, np.nextafter(g.edges[1:], 0), np.nextafter(g.edges[:-1], 2)])
    confidence = np.concatenate([rng.random(500), 1 - rng.random(500) ** 6 * 0.02, near])
    for values in (confidence, confidence.astype(np.float32)):
        assert np.array_equal(g.bins(bins)[g.assign(values)], equal_width_index(values, bins))


@pytest.mark.parametrize("classes", [2, 10, 70])  # few, and the layout for many
def test_one_pass_equals_the_direct_computation(classes: int) -> None:
    z, y = sample(3000, classes)
    probs = softmax(z)
    for s in (statistics_of(z, y), statistics_of_probabilities(probs, y)):
        for bins in (7, 10, 15):
            assert ece_of(s.bins(bins)) == pytest.approx(metrics.ece(probs, y, bins=bins), abs=1e-10)
            assert np.array_equal(s.bins(bins).rows, read_rows(probs, y).bins(bins).rows)
        found = evaluate(s)
        for name in ("accuracy", "nll", "brier", "balanced_accuracy", "macro_f1", "adaptive_ece", "classwise_ece",
                     "mce", "rms_calibration_error", "debiased_ece", "aurc", "auroc", "smooth_ece", "ece"):  # fmt: skip
            direct = getattr(metrics, name)(probs, y)
            assert found.metrics[name].value == pytest.approx(direct, abs=1e-10), name
        assert ("top5_accuracy" in found.metrics) == (classes > 5)  # of fewer it is always 100 %
        if classes > 5:
            assert found.metrics["top5_accuracy"].value == metrics.top_k_accuracy(probs, y, k=5)
        halves = metrics.over_under_ece(probs, y)
        assert found.metrics["over_ece"].value == pytest.approx(halves.over, abs=1e-10)
        assert found.metrics["under_ece"].value == pytest.approx(halves.under, abs=1e-10)


def test_ties_at_the_top_go_to_the_first_class_in_both_layouts() -> None:
    for classes in (4, 70):
        z = np.zeros((3, classes))
        z[1, [1, 2]] = 5.0
        z[2, 3] = 1.0
        s = statistics_of(z, np.array([0, 2, 3]))
        assert s.right_rows.tolist()[:4] == [1, 0, 0, 1]  # row 1 is predicted as 1, its label is 2


@pytest.mark.parametrize("classes", [10, 70])
def test_shards_in_any_order_add_up_to_the_whole(classes: int) -> None:
    z, y = sample(2000, classes)
    whole = statistics_of(z, y)
    parts = [statistics_of(z[i : i + 700], y[i : i + 700]) for i in (0, 700, 1400)]
    merged = parts[2] + parts[0] + parts[1]
    assert merged.rows == 2000
    for name in ("right", "wrong_by_predicted", "wrong_by_true", "all_right", "all_wrong", "probability"):
        assert np.array_equal(getattr(merged, name).count, getattr(whole, name).count), name
        assert np.allclose(getattr(merged, name).total, getattr(whole, name).total, atol=1e-10), name
    assert np.array_equal(merged.positive, whole.positive)
    assert np.array_equal(merged.confusion_pair, whole.confusion_pair)
    assert np.array_equal(merged.confusion_count, whole.confusion_count)
    found, expected = evaluate(merged), evaluate(whole)
    for name, value in expected.metrics.items():
        assert found.metrics[name].value == pytest.approx(value.value, abs=1e-10), name


def test_beyond_the_kept_rows_metrics_come_from_cells_and_hardly_move(monkeypatch: pytest.MonkeyPatch) -> None:
    data = arrays(GOLDEN / "resnet20_test.npz")
    z, y = data["logits"], data["labels"]
    exact = evaluate(statistics_of(z, y))
    monkeypatch.setattr(accumulate, "ROWS_KEPT", 1000)
    monkeypatch.setattr(statistics_module, "ROWS_KEPT", 1000)
    s = statistics_of(z, y)
    assert s.kept is None
    found = evaluate(s)
    assert (exact.exact, found.exact) == (True, False)
    for name, tolerance in {"auroc": 2e-5, "adaptive_ece": 2e-5, "smooth_ece": 2e-5, "debiased_ece": 2e-4,
                            "aurc": 2e-4}.items():  # fmt: skip  # ties at the very top weigh by 1/N; here N is small
        assert found.metrics[name].value == pytest.approx(exact.metrics[name].value, abs=tolerance), name
    assert found.metrics["ece"].value == pytest.approx(exact.metrics["ece"].value, abs=1e-12)
    with pytest.raises(ConfigError, match="at most 100 bins"):
        s.bins(101)


def test_target_prior_is_a_weight_for_each_true_class() -> None:
    z, y = sample(3000, 5)
    keep = np.random.default_rng(0).random(3000) < np.array([1, 0.6, 0.5, 0.3, 0.1])[y]
    z, y = z[keep], y[keep]
    probs, share = softmax(z), np.bincount(y) / len(y)
    weights = (1 / 5 / share)[y]
    found = evaluate(statistics_of(z, y), target_prior="uniform")
    for name in ("accuracy", "nll", "brier", "ece", "mce", "aurc", "auroc", "adaptive_ece", "smooth_ece", "macro_f1"):
        direct = getattr(metrics, name)(probs, y, weights=weights)
        assert found.metrics[name].value == pytest.approx(direct, abs=1e-10), name
    assert found.effective_rows < found.rows
    assert found.metrics["accuracy"].value == pytest.approx(metrics.balanced_accuracy(probs, y), abs=1e-12)


def test_labels_of_probability_zero_make_the_nll_infinite_and_are_counted() -> None:
    found = evaluate(np.array([[1.0, 0.0], [0.5, 0.5]]), [1, 0])
    assert found.metrics["nll"].value == float("inf")
    assert found.zero_probability_labels == 1
    assert found.to_dict()["metrics"]["nll"]["value"] is None  # JSON has no infinity


def test_tiny_inputs_are_evaluated() -> None:
    for probs, labels in (([[0.7, 0.3]], [0]), ([[1.0]], [0]), ([[0.2, 0.8], [0.2, 0.8]], [1, 1])):
        found = evaluate(np.array(probs), labels)
        assert found.metrics["accuracy"].value == 1.0
        assert np.isfinite(found.metrics["ece"].value)


def test_bad_logits_are_refused_from_inside_the_pass() -> None:
    z, y = sample(50, 4)
    z[17, 2] = np.nan
    with pytest.raises(DataError, match="1 of 50 rows"):
        statistics_of(z, y)
    with pytest.raises(DataError, match="labels contain 4"):
        statistics_of(np.zeros((2, 4)), [0, 4])


def test_file_statistics_equal_memory_and_skip_unlabelled_rows(tmp_path: Path) -> None:
    z, y = sample(3000, 6)
    y[::10] = -1
    write(tmp_path / "p.parquet", z, y)
    s = for_file(tmp_path / "p.parquet")
    known = y >= 0
    assert s.rows == int(known.sum())
    assert evaluate(s).ece.value == pytest.approx(metrics.ece(softmax(z[known]), y[known]), abs=1e-12)


def test_sidecar_is_used_while_the_predictions_stay_and_rebuilt_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    z, y = sample(500, 4)
    write(path, z, y)
    first = for_file(path)
    beside = sidecar_path(path)
    assert beside.name == "p.stats.npz"
    assert beside.exists()
    header, again = load(beside)
    assert header["kept"]
    assert evaluate(again).to_dict() == evaluate(first).to_dict()
    z2, y2 = sample(400, 4, seed=1)
    write(path, z2, y2)
    assert for_file(path).rows == 400
    before = beside.stat().st_mtime_ns
    assert for_file(path).rows == 400
    assert beside.stat().st_mtime_ns == before  # read, not made again


def test_each_calibrator_has_its_own_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    z, y = sample(800, 4)
    write(path, z, y)
    calibrator = fit("temperature", z, y)
    plain, calibrated = for_file(path), for_file(path, Formula(4, calibrator))
    assert sidecar_path(path) != sidecar_path(path, Formula(4, calibrator))
    assert evaluate(calibrated).nll.value < evaluate(plain).nll.value
    assert evaluate(for_file(path, Formula(4, calibrator))).nll.value == evaluate(calibrated).nll.value


def test_damaged_and_newer_sidecars_are_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.parquet"
    z, y = sample(300, 3)
    write(path, z, y)
    for_file(path)
    beside = sidecar_path(path)
    beside.write_bytes(beside.read_bytes()[:200])
    with pytest.raises(FormatError, match="damaged"):
        load(beside)
    assert for_file(path).rows == 300
    assert "made again" in caplog.text
    assert load(beside)[1].rows == 300


def test_shards_of_a_folder_are_one_table(tmp_path: Path) -> None:
    z, y = sample(1000, 5)
    for i in range(4):
        write(tmp_path / "run" / f"{i}.parquet", z[250 * i : 250 * (i + 1)], y[250 * i : 250 * (i + 1)])
    s = for_file(tmp_path / "run")
    assert s.rows == 1000
    assert np.array_equal(s.right.count, statistics_of(z, y).right.count)
    assert sidecar_path(tmp_path / "run") == tmp_path / "run.stats.npz"


def test_a_file_without_labels_is_refused(tmp_path: Path) -> None:
    z, y = sample(20, 3)
    write(tmp_path / "p.parquet", z, np.full_like(y, -1))
    with pytest.raises(CalibrantError, match="no row has a label"):
        for_file(tmp_path / "p.parquet")


def test_working_memory_does_not_grow_with_the_rows() -> None:
    import tracemalloc

    peaks = []
    for rows in (200_000, 800_000):
        z, y = np.zeros((rows, 8), np.float32), np.zeros(rows, np.int64)
        statistics_of(z[:1000], y[:1000])
        tracemalloc.start()
        accumulator = Accumulator(8, rows_expected=rows)
        accumulator.add(z, y)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 4e6  # tables and one chunk, whatever the rows
