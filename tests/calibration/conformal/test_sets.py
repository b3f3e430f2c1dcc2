"""Prediction sets hold what they promise; thresholds for answering too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration import fit
from calibrant.calibration.conformal.sets import (
    KINDS,
    ConformalSet,
    Kind,
    abstain_for_coverage,
    abstain_for_risk,
    all_scores,
    conformal_quantile,
    fit_conformal,
    set_quality,
    set_temperature,
)
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, FormatError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"
CAL, TEST = (arrays(GOLDEN / f"resnet20_{part}.npz") for part in ("cal", "test"))


@pytest.mark.parametrize("alpha", [0.1, 0.05])
@pytest.mark.parametrize("name", ["uncalibrated", "temperature"])
def test_lac_equals_the_reference(alpha: float, name: str) -> None:
    golden = json.loads((GOLDEN / "resnet20.json").read_text())
    t = golden["fit"]["temperature"]["temperature"] if name == "temperature" else 1.0
    found = fit_conformal(softmax(CAL["logits"] / t), CAL["labels"], alpha=alpha)
    quality = set_quality(found, softmax(TEST["logits"] / t), TEST["labels"])
    expected = golden["conformal_LAC"][f"{name} alpha={alpha}"]
    assert found.threshold == pytest.approx(expected["qhat"], abs=1e-6)
    assert quality.coverage == pytest.approx(expected["coverage"], abs=1e-12)
    assert quality.mean_size == pytest.approx(expected["mean_size"], abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("randomised", [False, True])
def test_coverage_is_nominal_within_a_point_over_100_splits(kind: Kind, randomised: bool) -> None:
    logits = np.concatenate([CAL["logits"], TEST["logits"]])
    labels = np.concatenate([CAL["labels"], TEST["labels"]])
    probs = softmax(logits / 2.574)
    rng = np.random.default_rng(0)
    u = rng if randomised else None
    hits = []
    for _ in range(100):
        order = rng.permutation(len(labels))[:3000]
        a, b = order[:1500], order[1500:]
        found = fit_conformal(probs[a], labels[a], alpha=0.1, kind=kind, rng=u)
        hits.append(found.contains(probs[b], rng=u)[np.arange(1500), labels[b]].mean())
    assert float(np.mean(hits)) == pytest.approx(0.9, abs=0.01)


def test_class_conditional_thresholds_lift_the_worst_class() -> None:
    probs, held_out = softmax(CAL["logits"] / 2.574), softmax(TEST["logits"] / 2.574)
    plain = set_quality(fit_conformal(probs, CAL["labels"]), held_out, TEST["labels"])
    by_class = set_quality(fit_conformal(probs, CAL["labels"], class_conditional=True), held_out, TEST["labels"])
    assert plain.worst_class_coverage is not None
    assert by_class.worst_class_coverage is not None
    assert by_class.worst_class_coverage > plain.worst_class_coverage + 0.02


def test_scores_by_hand() -> None:
    p = np.array([[0.2, 0.5, 0.3]])
    assert np.allclose(all_scores(p, "lac"), [[0.8, 0.5, 0.7]])
    assert np.allclose(all_scores(p, "aps"), [[0.8, 0.0, 0.5]])  # mass above
    assert np.allclose(all_scores(p, "aps", u=1.0), [[1.0, 0.5, 0.8]])
    assert np.allclose(all_scores(p, "raps", penalty=0.1, rank=1), [[0.8 + 0.2, 0.0, 0.5 + 0.1]])


def test_quantile_by_hand_and_too_few_rows() -> None:
    scores = np.arange(1, 10) / 10  # nine rows
    assert conformal_quantile(scores, 0.1) == 0.9  # ceil(10 * .9) = 9th
    assert conformal_quantile(scores, 0.5) == 0.5
    assert conformal_quantile(scores, 0.05) == float("inf")
    everything = fit_conformal(np.array([[0.6, 0.4]]), [0], alpha=0.1)
    assert everything.contains(np.array([[0.9, 0.1]])).all()


def test_deterministic_aps_sets_are_never_empty() -> None:
    found = fit_conformal(softmax(CAL["logits"]), CAL["labels"], kind="aps", alpha=0.3)
    assert found.contains(softmax(TEST["logits"])).any(axis=1).all()


def test_sets_round_trip_through_json() -> None:
    for found in (
        fit_conformal(softmax(CAL["logits"]), CAL["labels"], kind="raps", class_conditional=True),
        fit_conformal(np.array([[0.6, 0.4]]), [0]),
    ):
        assert ConformalSet.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found
    with pytest.raises(FormatError):
        ConformalSet.from_dict({"kind": "lac"})


def test_own_temperature_makes_smaller_sets_and_keeps_the_coverage() -> None:
    probs, held_out = softmax(CAL["logits"] / 2.574), softmax(TEST["logits"] / 2.574)
    t = set_temperature(probs[:2500], CAL["labels"][:2500], kind="aps")
    own = set_quality(
        fit_conformal(probs[2500:], CAL["labels"][2500:], kind="aps", temperature=t), held_out, TEST["labels"]
    )
    plain = set_quality(fit_conformal(probs[2500:], CAL["labels"][2500:], kind="aps"), held_out, TEST["labels"])
    assert own.mean_size <= plain.mean_size + 0.01
    assert own.coverage == pytest.approx(0.9, abs=0.02)


def test_abstaining_reaches_the_wanted_risk_on_rows_it_has_not_seen() -> None:
    calibrator = fit("temperature", CAL["logits"], CAL["labels"])
    found = abstain_for_risk(calibrator.probabilities(CAL["logits"]), CAL["labels"], risk=0.05)
    assert found.risk <= found.risk_high <= 0.05
    probs = calibrator.probabilities(TEST["logits"])
    answered = probs.max(axis=1) >= found.threshold
    wrong = probs.argmax(axis=1)[answered] != TEST["labels"][answered]
    assert 0.02 < wrong.mean() < 0.06
    assert answered.mean() == pytest.approx(found.coverage, abs=0.03)


def test_abstaining_by_coverage_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    found = abstain_for_coverage(probs, [0, 1, 0, 0], coverage=0.5)
    assert (found.threshold, found.coverage, found.risk) == (0.8, 0.5, 0.5)
    with pytest.raises(ConfigError, match="no threshold"):
        abstain_for_risk(probs, [0, 1, 0, 0], risk=0.01)


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"alpha": 1.0}, {"kind": "top"}])
def test_impossible_wishes_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        fit_conformal(np.array([[0.6, 0.4]]), [0], **bad)  # type: ignore[arg-type]


def test_the_upper_limit_of_no_error_in_fifty_answers() -> None:
    """Clopper and Pearson, one-sided: with no error in n rows the limit solves (1 - r)^n = 5 %."""
    probs = np.tile([0.9, 0.1], (50, 1))
    found = abstain_for_coverage(probs, np.zeros(50, int), coverage=1.0)
    assert (found.coverage, found.risk) == (1.0, 0.0)
    assert found.risk_high == pytest.approx(1 - 0.05 ** (1 / 50))
    with pytest.raises(ConfigError, match="with 95 % certainty"):
        abstain_for_risk(probs, np.zeros(50, int), risk=0.05)
    assert abstain_for_risk(probs, np.zeros(50, int), risk=0.06).risk_high < 0.06


def test_the_worst_class_is_one_of_those_with_twenty_rows() -> None:
    """Class 0: 19 rows, none covered. Class 1: 20 rows, half covered. Class 2: 40 rows, all covered."""
    labels = np.repeat([0, 1, 2], [19, 20, 40])
    probs = np.full((79, 3), 0.05)
    probs[:19, 2] = probs[19:29, 1] = probs[29:39, 2] = probs[39:, 2] = 0.9
    quality = set_quality(ConformalSet("lac", 0.1, 0.5, 79), probs, labels)
    assert (quality.worst_class, quality.worst_class_coverage) == (1, 0.5)
    assert quality.coverage == pytest.approx(50 / 79)
