from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.losses import (
    BalancedSoftmax,
    CrossEntropy,
    DoubleCorrectionWarning,
    create_loss,
    effective_number_weights,
    log_prior,
    post_hoc_logits,
    total_correction,
)
from calibrant.train.losses.prior import weight_strength

BENCH = Path(__file__).resolve().parents[3] / "bench" / "losses_longtail.py"


def test_log_prior_adds_one_to_all_counts_only_if_a_class_is_empty() -> None:
    assert log_prior([1, 3]).exp().tolist() == pytest.approx([0.25, 0.75])
    assert log_prior([0, 2]).exp().tolist() == pytest.approx([0.25, 0.75])


def test_post_hoc_adjustment_subtracts_the_log_prior() -> None:
    z = torch.zeros(2, 2, 3, dtype=torch.float64)
    adjusted = post_hoc_logits(z, [1, 3], tau=2.0)
    torch.testing.assert_close(adjusted[1, :, 2], -2 * torch.tensor([0.25, 0.75], dtype=torch.float64).log())


def test_both_right_routes_reach_the_balanced_rule_and_the_wrong_ones_do_not() -> None:
    """Ten draws have a mean Bayes error of 29.05 % and must reach 32.5 (bench: 31.94); five of them here."""
    spec = importlib.util.spec_from_file_location("losses_longtail", BENCH)
    assert spec is not None
    assert spec.loader is not None
    toy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toy)
    runs = [toy.errors(toy.draw(seed)) for seed in range(5)]
    error = {rule: sum(run[rule][0] for run in runs) / len(runs) for rule in runs[0]}
    assert error["balanced softmax, raw at test"] <= error["Bayes"] + 3.4
    assert error["CE, -log pi at test"] <= error["Bayes"] + 3.4
    for wrong in (
        "CE",
        "-log pi in training (wrong sign)",
        "CE, +log pi at test (wrong sign)",
        "balanced softmax and -log pi at test (twice)",
    ):
        assert error[wrong] > error["Bayes"] + 10


def test_asking_for_two_corrections_warns_with_the_total() -> None:
    loss = BalancedSoftmax(3, [9, 3, 1])
    with pytest.warns(
        DoubleCorrectionWarning, match=r"BalancedSoftmax \(1\) \+ post-hoc adjustment \(1\) = total strength 2"
    ):
        assert total_correction(loss, post_hoc=1.0) == 2
    with pytest.warns(DoubleCorrectionWarning, match="sampler"):
        total_correction(loss, balanced_sampler=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert total_correction(loss) == 1
        assert total_correction(CrossEntropy(3), post_hoc=1.5) == 1.5
        assert total_correction(CrossEntropy(3)) == 0


def test_effective_number_weights_at_their_ends() -> None:
    counts = [1000, 100, 10, 0]
    assert effective_number_weights(counts, beta=0.0).tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3, 0])
    weights = effective_number_weights(counts, beta=1 - 1e-12)
    assert (weights * torch.tensor(counts)).tolist()[:3] == pytest.approx([(weights[0] * 1000).item()] * 3, rel=1e-6)
    assert weights.sum().item() == pytest.approx(4)
    with pytest.raises(ConfigError):
        effective_number_weights(counts, beta=1.0)


def test_weights_of_one_over_n_have_strength_one() -> None:
    counts = torch.tensor([1000.0, 100.0, 10.0])
    assert weight_strength(1 / counts, counts) == pytest.approx(1)
    assert weight_strength(counts.pow(-0.5), counts) == pytest.approx(0.5)
    assert weight_strength(torch.ones(3), counts) == 0
    assert weight_strength(torch.tensor([1.0, 2.0]), torch.tensor([5.0, 5.0])) == 0


def test_ldam_switches_its_weights_on_at_four_fifths_of_the_epochs() -> None:
    counts = [1000, 100, 10]
    loss = create_loss("ldam", num_classes=3, class_counts=counts)
    for epoch, on in ((0, False), (159, False), (160, True), (199, True)):
        loss.on_epoch_start(epoch, 200)
        assert bool((loss.weights != 1).any()) == on
        assert (loss.absorbed_prior_strength > 0.9) == on
    expected = effective_number_weights(counts)
    assert torch.equal(loss.weights, expected)
    never = create_loss("ldam", num_classes=3, class_counts=counts, drw=False)
    never.on_epoch_start(199, 200)
    assert never.weights.tolist() == [1, 1, 1]


def test_ldam_refuses_an_empty_class() -> None:
    with pytest.raises(ConfigError, match="class 1 has no image"):
        create_loss("ldam", num_classes=3, class_counts=[4, 0, 2])


def test_ldam_tells_once_when_logits_are_no_cosines(caplog: pytest.LogCaptureFixture) -> None:
    loss = create_loss("ldam", num_classes=2, class_counts=[4, 2])
    y = torch.tensor([0])
    loss(torch.tensor([[0.5, -1.0]]), y)
    assert not caplog.records
    for _ in range(2):
        loss(torch.tensor([[5.0, -1.0]]), y)
    assert len(caplog.records) == 1


def test_effective_number_weights(golden: Callable[[str], Any]) -> None:
    g = golden("cb_weights")
    for i in range(2):
        weights = effective_number_weights(g[f"{i}.counts"], beta=float(g[f"{i}.beta"]))
        np.testing.assert_allclose(weights, g[f"{i}.weights"], rtol=1e-9)
