"""auto: leans on the temperature where that is the truth, mixes where more pays, and says so."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit, metrics
from calibrant.calibration.calibrators.estimation.candidates import POOLED, candidates_for
from calibrant.calibration.report.fit_account import fit_account
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError


def drawn(rows: int, shift: np.ndarray, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, len(shift))) * 4
    return z, (softmax(z / 2 + shift).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def test_it_loses_next_to_nothing_where_a_temperature_is_the_truth() -> None:
    fresh, truth = drawn(20000, np.zeros(4), 6)
    lost = []
    for seed in (5, 15, 25):
        z, y = drawn(400, np.zeros(4), seed)
        losses = {m: metrics.nll(fit(m, z, y).probabilities(fresh), truth) for m in ("auto", "temperature")}
        lost.append(losses["auto"] - losses["temperature"])
    assert np.mean(lost) <= 0.002


def test_it_takes_the_gain_where_classes_are_shifted_and_accounts_for_it() -> None:
    shift = np.array([1.5, 0.0, 0.0, -1.5])
    z, y = drawn(400, shift)
    fresh, truth = drawn(20000, shift, 6)
    found = fit("auto", z, y)
    assert (
        metrics.nll(found.probabilities(fresh), truth)
        < metrics.nll(fit("temperature", z, y).probabilities(fresh), truth) - 0.05
    )
    account = found.fit["auto"]
    assert sum(m["share"] for m in account["methods"].values()) == pytest.approx(1.0)
    best = account["methods"]["temperature"]
    assert best["minus_chosen_low"] > 0  # told from the temperature, on rows that no map had seen
    again = Calibrator.from_json(found.to_json())
    assert np.array_equal(again.probabilities(fresh[:50]), found.probabilities(fresh[:50]))


def test_too_few_rows_to_choose_are_named() -> None:
    found = fit("auto", *drawn(40, np.array([0.3, 0.0, -0.3])))
    assert "too few to choose" in found.fit["auto"]["few_rows"]


def test_candidates_can_be_named_and_fewer_than_ten_rows_are_refused() -> None:
    z, y = drawn(600, np.array([1.5, 0.0, 0.0, -1.5]))
    found = fit("auto", z, y, candidates=("temperature", "vector"))
    assert set(found.fit["auto"]["methods"]) == {"temperature", "vector"}
    assert found.method == "vector"
    with pytest.raises(ConfigError, match="at least 10 rows"):
        fit("auto", z[:9], y[:9])


def test_inside_a_prior_correction_it_takes_one_map() -> None:
    z, y = drawn(300, np.zeros(4))
    found = fit("auto", z, y, log_prior_ratio=np.array([0.5, 0.0, 0.0, -0.5]), strength=1.0)
    assert found.method != "mixture"


def test_the_account_prints_shares() -> None:
    found = fit("auto", *drawn(300, np.array([1.5, 0.0, 0.0, -1.5])))
    text = fit_account(found.with_context(metrics=_nothing()))
    assert "share" in text
    assert "minus chosen" in text


def _nothing() -> dict[str, dict[str, dict[str, float | None]]]:
    from calibrant.calibration.evaluation import evaluate
    from calibrant.calibration.fitting import reported
    from calibrant.calibration.statistics.accumulate import statistics_of

    shown = reported(evaluate(statistics_of(*drawn(60, np.zeros(4)))))
    return {"before": shown, "after": shown}


def test_labels_that_no_logit_foresaw_bring_a_uniform_share_and_keep_a_loss_finite() -> None:
    z, y = drawn(300, np.zeros(4))
    z = z * 3
    y = z.argmax(axis=1)
    y[::20] = (y[::20] + 1) % 4  # one in twenty at random, however sure the network is
    found = fit("auto", z, y)
    assert found.parameters["members"][-1]["parameters"]["weights"] == [0.0, 0.0, 1.0]
    assert 0.02 < found.parameters["weights"][-1] < 0.12  # 4/3 of a twentieth at most
    least = (found.parameters["weights"][-1] / 4) ** (1 / found.parameters.get("temperature", 1.0))
    assert found.probabilities(z * 100).min() >= least - 1e-3


def test_many_classes_are_pooled() -> None:
    # Noisy copies of the right weights: what the classes say of each other is wrong, which a full map can mend.
    rng = np.random.default_rng(0)
    means = rng.normal(0, 0.5, (32, 16))
    learned = means + rng.normal(0, 0.5, means.shape)

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 32, n)
        x = means[y] + rng.normal(size=(n, 16))
        return 2 * (x @ learned.T - 0.5 * (learned**2).sum(axis=1)), y

    (z, y), (fresh, truth) = rows(800), rows(4000)
    found = fit("auto", z, y)
    loss = metrics.nll(found.probabilities(fresh), truth)
    members = [Calibrator(m["method"], 32, m["parameters"], {}, {}) for m in found.parameters["members"]]
    assert len(members) >= 2
    assert {m.method for m in members} <= {*(m.method for m in POOLED), "ensemble-temperature"}
    losses = [metrics.nll(m.probabilities(fresh), truth) for m in members]
    assert loss <= np.dot(found.parameters["weights"], losses)  # which is what pooling promises
    # Its members are nearly right and disagree: the pool is less sure than it could be.
    assert found.parameters["temperature"] < 0.98
    assert found.fit["auto"]["temperature"] == found.parameters["temperature"]
    untempered = Calibrator("mixture", 32, {k: v for k, v in found.parameters.items() if k != "temperature"})
    assert loss < metrics.nll(untempered.probabilities(fresh), truth)
    assert loss < metrics.nll(fit("temperature", z, y).probabilities(fresh), truth) - 0.1


def test_few_rows_of_many_classes_are_not_pooled() -> None:
    z, y = drawn(150, np.zeros(35))
    names = set(fit("auto", z, y).fit["auto"]["methods"])
    assert "structured (penalty 30)" in names
    assert not any("on logits" in name for name in names)
    assert "venn-abers" in names  # which guesses well of classes with hardly a row


def test_rare_classes_take_venn_abers_and_shares_move_with_held_out_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    shares = 100.0 ** (-np.arange(60) / 59)
    means = rng.normal(0, 0.4, (60, 32))
    learned = means + rng.normal(size=means.shape) / np.sqrt(np.maximum(1, 100 * shares))[:, None]

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.choice(60, n, p=shares / shares.sum())
        x = means[y] + rng.normal(size=(n, 32))
        return 2 * (x @ learned.T - 0.5 * (learned**2).sum(axis=1) + np.log(shares)), y

    (z, y), (fresh, truth) = rows(250), rows(3000)
    found = fit("auto", z, y)
    shares_of = {m["method"]: m["share"] for m in found.fit["auto"]["members"]}
    assert shares_of.get("venn-abers", 0.0) > 0.1
    loss = metrics.nll(found.probabilities(fresh), truth)
    plain = metrics.nll(fit("temperature", z, y).probabilities(fresh), truth)
    alone = metrics.nll(fit("venn-abers", z, y).probabilities(fresh), truth)
    assert loss < min(plain, alone + 0.02)
    monkeypatch.setattr("calibrant.calibration.calibrators.auto._PSEUDO_ROWS", 1e9)
    held = fit("auto", z, y)
    assert {m["method"]: m["share"] for m in held.fit["auto"]["members"]}["venn-abers"] == pytest.approx(0.2, abs=0.02)
    assert loss < metrics.nll(held.probabilities(fresh), truth) - 0.004


def test_few_rows_of_confused_classes_give_a_weakly_penalised_map_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    mix = np.eye(6) + rng.normal(0, 0.35, (6, 6))

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        z = rng.normal(size=(n, 6)) * 3
        p = softmax(z @ mix.T / 1.5)
        return z, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)

    (z, y), (fresh, truth) = rows(100), rows(5000)
    found = fit("auto", z, y)
    weak = [m["share"] for m in found.fit["auto"]["members"] if m["options"].get("penalty") == 0.1]
    assert sum(weak) > 0.1
    nothing = dataclasses.replace(candidates_for(100, 6), part=0.0)
    monkeypatch.setattr("calibrant.calibration.calibrators.auto.candidates_for", lambda *_, **__: nothing)
    without = fit("auto", z, y)
    assert metrics.nll(found.probabilities(fresh), truth) < metrics.nll(without.probabilities(fresh), truth) - 0.003
