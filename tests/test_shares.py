"""What is worked out from class priors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.errors import ConfigError
from calibrant.shares import class_weights, head_medium_tail, log_prior_ratio, shares, thirds


def test_ratio_of_counts_by_hand() -> None:
    assert np.allclose(log_prior_ratio([2, 1, 1]), np.log(np.array([0.5, 0.25, 0.25]) * 3))
    assert np.allclose(log_prior_ratio([2, 2], [1, 3]), np.log([0.5 / 0.25, 0.5 / 0.75]))


def test_a_class_of_training_prior_zero_is_refused_by_name_or_smoothed() -> None:
    with pytest.raises(ConfigError, match="training prior of class 1 is 0"):
        log_prior_ratio([10, 0, 5])
    with pytest.raises(ConfigError, match="training prior of owl is 0"):
        log_prior_ratio([10, 0, 5], class_names=("crane", "owl", "gull"))
    smoothed = log_prior_ratio([10, 0, 5], smooth=1)
    assert np.allclose(smoothed, np.log(np.array([11, 1, 6]) / 18) - np.log(np.array([1, 1, 1]) / 3))


def test_a_target_of_zero_rules_a_class_out() -> None:
    p = np.exp(-log_prior_ratio([1, 1], [1, 0]))
    assert p[1] / p[0] == pytest.approx(1e-12)


def test_row_weights_are_the_ratio_of_priors() -> None:
    assert np.allclose(class_weights([0.8, 0.2], [0.5, 0.5]), [0.625, 2.5])
    with pytest.raises(ConfigError, match="class 1 has no share in the data"):
        class_weights([1.0, 0.0], [0.5, 0.5])


def test_row_weights_without_a_target_are_those_of_a_uniform_one() -> None:
    assert np.allclose(class_weights([3, 1]), [2 / 3, 2.0])
    with pytest.raises(ConfigError, match=r"class 1 has no share in the data but 0\.333 in the target prior"):
        class_weights([3, 0, 1])


@pytest.mark.parametrize("bad", [[], [[1, 2]], [1, -1], [0, 0], [np.nan, 1], [1, np.inf]])
def test_what_is_no_prior_is_refused(bad: list[float]) -> None:
    with pytest.raises(ConfigError, match="the prior must be"):
        shares(bad)


def test_head_and_tail_hold_equally_many_classes() -> None:
    assert thirds([1, 9, 5, 7, 3, 2]) == {"head": (1, 3), "medium": (2, 4), "tail": (0, 5)}
    for classes in range(3, 40):
        parts = thirds(range(classes, 0, -1))
        assert len(parts["head"]) == len(parts["tail"])
        assert sorted(k for part in parts.values() for k in part) == list(range(classes))
    assert [len(part) for part in thirds(range(10, 0, -1)).values()] == [3, 4, 3]


def test_classes_without_a_tail_have_no_groups() -> None:
    assert head_medium_tail(None) == head_medium_tail([0.5, 0.5]) == head_medium_tail([0.4, 0.3, 0.3]) == {}
    assert head_medium_tail([0.5, 0.25, 0.25]) == {"head": (0,), "medium": (1,), "tail": (2,)}


def test_three_readers_have_one_recall_of_the_head_classes(tmp_path: Path) -> None:
    """Heads' table, `evaluate` and the dashboard; ten classes, where the old rules gave 4/3/3 and 3/4/3."""
    from calibrant.calibration.evaluate_files import evaluate_files
    from calibrant.calibration.softmax import softmax
    from calibrant.dashboard.numbers.groups import selections
    from calibrant.train.heads.scores import measure

    rng = np.random.default_rng(0)
    counts = np.round(200 * 20.0 ** (-np.arange(10) / 9)).astype(np.int64)
    labels = np.repeat(np.arange(10), 30)
    logits = (2 * np.eye(10)[labels] + np.log(counts / counts.sum()) + rng.standard_normal((300, 10))).astype(
        np.float32
    )
    source = Source(tuple("abcdefghij"), tuple((counts / counts.sum()).tolist()))
    path = tmp_path / "test.parquet"
    Predictions(tuple(map(str, range(300))), labels, logits, source).write(path)
    model = evaluate_files([path])[0]
    recall = {group.name: group.recall for group in model.evaluation.groups}
    found = measure(softmax(logits), labels, counts)
    assert recall == {name: pytest.approx(found[f"{name}_accuracy"], abs=1e-12) for name in ("head", "medium", "tail")}
    shown = {s.key: s.classes for s in selections(source) if s.key in recall}
    assert shown == {"head": (0, 1, 2), "medium": (3, 4, 5, 6), "tail": (7, 8, 9)}
