"""Prediction sets hold what they promise, under the prior of their rows and under another."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calibrant.calibration.conformal.scores import KINDS, Kind
from calibrant.calibration.conformal.sets import ConformalSet, conformal_quantile, fit_conformal, weighted_quantiles
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, FormatError


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "calibration"
CAL, TEST = (arrays(GOLDEN / f"resnet20_{part}.npz") for part in ("cal", "test"))


def covered(sets: ConformalSet, probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    inside: np.ndarray = sets.contains(probs)[np.arange(len(labels)), labels]
    return inside


@pytest.mark.parametrize("alpha", [0.1, 0.05])
@pytest.mark.parametrize("name", ["uncalibrated", "temperature"])
def test_lac_equals_the_reference(alpha: float, name: str) -> None:
    golden = json.loads((GOLDEN / "resnet20.json").read_text())
    t = golden["fit"]["temperature"]["temperature"] if name == "temperature" else 1.0
    found = fit_conformal(softmax(CAL["logits"] / t), CAL["labels"], alpha=alpha)
    probs = softmax(TEST["logits"] / t)
    expected = golden["conformal_LAC"][f"{name} alpha={alpha}"]
    assert found.threshold == pytest.approx(expected["qhat"], abs=1e-6)
    assert covered(found, probs, TEST["labels"]).mean() == pytest.approx(expected["coverage"], abs=1e-12)
    assert found.contains(probs).sum(axis=1).mean() == pytest.approx(expected["mean_size"], abs=1e-12)


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
    probs, held_out, y = softmax(CAL["logits"] / 2.574), softmax(TEST["logits"] / 2.574), TEST["labels"]
    plain = covered(fit_conformal(probs, CAL["labels"]), held_out, y)
    by_class = covered(fit_conformal(probs, CAL["labels"], class_conditional=True), held_out, y)
    worst = [min(float(hit[y == k].mean()) for k in range(10)) for hit in (plain, by_class)]
    assert worst[1] > worst[0] + 0.02


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


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"alpha": 1.0}, {"kind": "top"}])
def test_impossible_wishes_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        fit_conformal(np.array([[0.6, 0.4]]), [0], **bad)  # type: ignore[arg-type]


def test_weighted_quantiles_by_hand() -> None:
    # Scores .1 .2 .3 .4 of weight 1 1 1 3: total 6. Of 80 %: with 0 at infinity 4.8 is reached at .4; with 1, 5.6 at
    # .4; with 2, 6.4 never. Of 50 %: with 0, 3 at .3; with 1, 3.5 at .4.
    scores, weights = np.array([0.3, 0.1, 0.4, 0.2]), np.array([1.0, 1.0, 3.0, 1.0])
    at_infinity = np.array([0.0, 1.0, 2.0])
    assert weighted_quantiles(scores, weights, at_infinity, 0.2).tolist() == [0.4, 0.4, np.inf]
    assert weighted_quantiles(scores, weights, at_infinity[:2], 0.5).tolist() == [0.3, 0.4]


def test_the_prior_of_the_rows_themselves_gives_the_plain_threshold() -> None:
    probs, y = softmax(CAL["logits"] / 2.574), CAL["labels"]
    plain = fit_conformal(probs, y)
    same = fit_conformal(probs, y, target_prior=np.bincount(y))
    assert same.class_thresholds == pytest.approx([plain.threshold] * 10)
    assert same.effective_rows == pytest.approx(len(y))


def test_a_class_of_the_target_without_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="class 2 has no share in the data"):
        fit_conformal(np.full((8, 3), 1 / 3), [0, 1] * 4, target_prior=[1, 1, 1])


def long_tailed(rng: np.random.Generator, rows: int, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a Gaussian class model, with its exact p(y | x) under `prior`."""
    y = rng.choice(len(prior), rows, p=prior)
    z = 2.2 * (rng.normal(size=(rows, len(prior))) + 2.2 * np.eye(len(prior))[y])
    return z, y


@pytest.mark.slow
def test_sets_under_a_target_prior_cover_what_they_promise() -> None:
    """Tail 50, fitted on 1,000 long-tailed rows, judged on uniform ones: weighted and adjusted, 40 draws."""
    train, uniform = 50.0 ** -(np.arange(10) / 9), np.full(10, 0.1)
    train = train / train.sum()
    hits: dict[str, list[float]] = {"weighted": [], "unadjusted": [], "plain": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z, y = long_tailed(rng, 1000, train)
        fresh, truth = long_tailed(rng, 4000, uniform)
        to_train, to_uniform = np.log(train), np.zeros(10)  # z are log likelihoods
        weighted = fit_conformal(softmax(z + to_uniform), y, alpha=0.1, target_prior=uniform)
        hits["weighted"].append(float(covered(weighted, softmax(fresh + to_uniform), truth).mean()))
        unadjusted = fit_conformal(softmax(z + to_train), y, alpha=0.1, target_prior=uniform)  # valid too, only larger
        hits["unadjusted"].append(float(covered(unadjusted, softmax(fresh + to_train), truth).mean()))
        plain = fit_conformal(softmax(z + to_train), y, alpha=0.1)
        hits["plain"].append(float(covered(plain, softmax(fresh + to_train), truth).mean()))
    assert 0.885 <= np.mean(hits["weighted"]) <= 0.925
    assert 0.885 <= np.mean(hits["unadjusted"]) <= 0.925
    assert np.mean(hits["plain"]) < 0.85  # what the file served before
