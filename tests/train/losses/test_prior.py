from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.errors import ConfigError
from calibrant.train.losses import (
    BalancedSoftmax,
    CrossEntropy,
    DoubleCorrectionWarning,
    Loss,
    create_loss,
    effective_number_weights,
    log_prior,
    post_hoc_logits,
    total_correction,
)
from calibrant.train.losses.prior import weight_strength


def test_log_prior_adds_one_to_all_counts_only_if_a_class_is_empty() -> None:
    assert log_prior([1, 3]).exp().tolist() == pytest.approx([0.25, 0.75])
    assert log_prior([0, 2]).exp().tolist() == pytest.approx([0.25, 0.75])


def test_post_hoc_adjustment_subtracts_the_log_prior() -> None:
    z = torch.zeros(2, 2, 3, dtype=torch.float64)
    adjusted = post_hoc_logits(z, [1, 3], tau=2.0)
    torch.testing.assert_close(adjusted[1, :, 2], -2 * torch.tensor([0.25, 0.75], dtype=torch.float64).log())


CLASSES, SCALE = 10, 0.77  # the scale of the means that puts the mean Bayes error at 29 %


def drawn(seed: int) -> dict[str, torch.Tensor]:
    """Ten Gaussians in ten dimensions, training counts 1000 to 10, balanced test set."""
    rng = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, 10, generator=rng, dtype=torch.float64) * SCALE
    counts = torch.logspace(3, 1, CLASSES, dtype=torch.float64).round().long()
    y = torch.repeat_interleave(torch.arange(CLASSES), counts)
    y_test = torch.arange(CLASSES).repeat(1000)

    def sample(labels: torch.Tensor) -> torch.Tensor:
        return means[labels] + torch.randn(len(labels), 10, generator=rng, dtype=torch.float64)

    return {"means": means, "counts": counts, "x": sample(y), "y": y, "x_test": sample(y_test), "y_test": y_test}


def fitted(loss: Loss, x: torch.Tensor, y: torch.Tensor) -> nn.Linear:
    """A linear softmax, to convergence."""
    head = nn.Linear(x.shape[1], CLASSES).double()
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    opt = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

    def closure() -> torch.Tensor:
        opt.zero_grad()
        value = loss(head(x), y) + 1e-5 * head.weight.square().sum()  # keeps rare, separable classes bounded
        value.backward()
        return value

    opt.step(closure)
    return head


def errors(data: dict[str, torch.Tensor]) -> dict[str, float]:
    """Rule -> balanced error in %."""
    counts = data["counts"]
    z = {}
    for tau in (0.0, 1.0, -1.0):
        loss = BalancedSoftmax(CLASSES, counts, tau=tau) if tau else CrossEntropy(CLASSES)
        z[tau] = fitted(loss, data["x"], data["y"])(data["x_test"]).detach()

    def error(z: torch.Tensor) -> float:
        return float((z.argmax(1) != data["y_test"]).double().mean() * 100)

    return {
        "Bayes": error(-torch.cdist(data["x_test"], data["means"])),
        "not at all": error(z[0.0]),
        "in training": error(z[1.0]),
        "afterwards": error(post_hoc_logits(z[0.0], counts, tau=1.0)),
        "wrong sign in training": error(z[-1.0]),
        "wrong sign afterwards": error(post_hoc_logits(z[0.0], counts, tau=-1.0)),
        "twice": error(post_hoc_logits(z[1.0], counts, tau=1.0)),
    }


def test_both_right_routes_reach_the_balanced_rule_and_the_wrong_ones_do_not() -> None:
    """Ten draws have a mean Bayes error of 29.05 % and either right route one of 31.94 there; five of them here."""
    runs = [errors(drawn(seed)) for seed in range(5)]
    error = {rule: sum(run[rule] for run in runs) / len(runs) for rule in runs[0]}
    assert error["in training"] <= error["Bayes"] + 3.4
    assert error["afterwards"] <= error["Bayes"] + 3.4
    for wrong in ("not at all", "wrong sign in training", "wrong sign afterwards", "twice"):
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
