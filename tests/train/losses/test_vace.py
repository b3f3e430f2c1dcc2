from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.errors import ConfigError
from calibrant.train.losses import VACE, MixedTarget, create_loss
from calibrant.train.losses.vace import ClassScatter


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("k", [0, 1])
def test_steps_equal_the_golden_run(k: int, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden(f"spec_derived_vace_{k}")
    m = g.meta
    loss = create_loss(
        "vace", num_classes=m["C"], feature_dim=m["D"], lam=m["lam"], rho=m["rho"], mode=m["mode"], gauge=m["gauge"],
        tau_min=m["tau_min"], tau_max=m["tau_max"],
    )  # fmt: skip
    logits, targets, features = g.tensor("logits", dtype), g.labels("targets"), g.tensor("features", dtype)
    state = 1e-9 if dtype == torch.float64 else 1e-4
    for t in range(m["T"]):
        z = logits[t].clone().requires_grad_()
        value = loss(z, targets[t], features[t])
        value.backward()
        np.testing.assert_allclose(value.item(), g["loss"][t], rtol=1e-6 if dtype == torch.float64 else 1e-4)
        np.testing.assert_allclose(z.grad, g["grad_logits"][t], atol=1e-6 if dtype == torch.float64 else 1e-4)
        np.testing.assert_allclose(loss.class_temperatures(), g["tau"][t], atol=state)
        np.testing.assert_allclose(loss.statistics.scatter, g["scatter_raw"][t], atol=state)
        np.testing.assert_allclose(loss.statistics.weight_sq, g["w2"][t], atol=state)
    np.testing.assert_allclose(loss.statistics.mean, g["final_mean"], atol=state)


def trained(gauge: str = "none", steps: int = 5, **options: Any) -> VACE:
    rng = torch.Generator().manual_seed(3)
    loss = VACE(5, 6, gauge=gauge, **options)
    for _ in range(steps):
        y = torch.randint(0, 5, (16,), generator=rng)
        f = torch.randn(16, 6, generator=rng, dtype=torch.float64) * (1 + y[:, None])
        loss(torch.randn(16, 5, generator=rng, dtype=torch.float64), y, f)
    return loss.eval()


@pytest.mark.parametrize("gauge", ["none", "mean", "max", "logsoftmax"])
def test_gradient_equals_finite_differences(gauge: str) -> None:
    loss = trained(gauge)
    assert len(loss.class_temperatures().unique()) > 2
    z = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).mul(3).requires_grad_()
    f = torch.zeros(4, 6, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: loss(z, torch.tensor([0, 1, 4, 4]), f), (z,))


def test_gradient_by_the_formula_of_gauge_none() -> None:
    """dL/dz_k = (p'_k - [k = y]) / tau_k / B."""
    loss = trained()
    tau = loss.class_temperatures()
    z = torch.tensor([[1.0, 2.0, -1.0, 0.5, 3.0]], dtype=torch.float64, requires_grad=True)
    loss(z, torch.tensor([2]), torch.zeros(1, 6)).backward()
    h = ((z.detach() / tau).softmax(1) - torch.eye(5, dtype=torch.float64)[2]) / tau
    torch.testing.assert_close(z.grad, h, rtol=1e-12, atol=1e-14)
    assert abs(float(h.sum())) > 1e-3  # unlike cross-entropy: the loss depends on a constant added to all logits


def test_tau_one_is_cross_entropy_exactly() -> None:
    z = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    y = torch.arange(9) % 5
    for loss in (VACE(5, 6), VACE(5, 6, warmup_steps=10), VACE(5, 6, tau_min=1, tau_max=1)):
        f = torch.randn(9, 6, generator=torch.Generator().manual_seed(2))
        if loss.tau_max == 2 and loss.warmup_steps == 0:
            loss.eval()  # no statistics yet
        assert loss(z, y, f).item() == create_loss("ce", num_classes=5)(z, y).item()
        assert torch.equal(loss.adjust_logits(z), z)


def test_equal_scatter_is_cross_entropy_in_centered_mode_and_softer_by_default() -> None:
    centered, published = VACE(2, 1, mode="centered"), VACE(2, 1)
    f, y = torch.tensor([[0.0], [2.0], [5.0], [7.0]]), torch.tensor([0, 0, 1, 1])
    for loss in (centered, published):
        loss(torch.zeros(4, 2), y, f)
    assert centered.class_temperatures().tolist() == [1, 1]
    assert published.class_temperatures().tolist() == [1.5, 1.5]


def test_temperatures_by_hand() -> None:
    """Class 0: rows 0, 2, unbiased variance 2. Class 1: rows 0, 4, variance 8. Class 2: one row, r = 1. sbar = 5."""
    f, y = torch.tensor([[0.0], [2.0], [0.0], [4.0], [9.0]]), torch.tensor([0, 0, 1, 1, 2])

    def tau(**options: Any) -> list[float]:
        loss = VACE(4, 1, tau_max=9.0, tau_min=0.1, **options)
        loss(torch.zeros(5, 4), y, f)
        return loss.class_temperatures().tolist()

    assert tau() == pytest.approx([1.2, 1.8, 1.5, 1.5])
    assert tau(a=2.0, lam=1.0) == pytest.approx([2.4, 3.6, 3, 3])
    assert tau(mode="centered") == pytest.approx([0.7, 1.3, 1, 1])
    assert tau(a=0.5, b=0.25) == pytest.approx([1, 2.5, 1.75, 1.75])
    loss = VACE(4, 1)
    loss(torch.zeros(5, 4), y, 1000 * f)
    assert max(loss.class_temperatures().tolist()) <= 2


@pytest.mark.parametrize("rows", [[1], [2], [1, 1, 2, 5]])
def test_scatter_is_unbiased_even_at_one_row_per_class(rows: list[int]) -> None:
    """True variance 2.3; 4000 classes, 25 updates. A plain average of batch variances would give 0 at one row."""
    rng = torch.Generator().manual_seed(0)
    stats = ClassScatter(4000, 1, rho=0.1)
    for t in range(25):
        y = torch.arange(4000).repeat(rows[t % len(rows)])
        stats.update(torch.randn(len(y), 1, generator=rng, dtype=torch.float64) * 2.3**0.5 + 7, y)
    vhat, valid = stats.unbiased()
    assert valid.all()
    assert float(vhat.mean()) == pytest.approx(2.3, rel=0.02)


def test_absent_classes_and_eval_leave_the_statistics_alone() -> None:
    loss = trained()
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    loss(torch.randn(3, 5), torch.tensor([0, 1, 2]), torch.randn(3, 6))
    assert all(torch.equal(v, before[k]) for k, v in loss.state_dict().items())
    loss.train()(torch.randn(3, 5), torch.tensor([0, 1, 1]), torch.randn(3, 6))
    after = loss.statistics.mean
    assert torch.equal(after[2:], before["statistics.mean"][2:])
    assert not torch.equal(after[0], before["statistics.mean"][0])


def test_rows_that_are_not_finite_never_reach_the_statistics() -> None:
    f, y, z = torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 0, 1]), torch.randn(6, 2)
    bad_f, bad_z = f.clone(), z.clone()
    bad_f[4, 1] = float("inf")
    bad_z[5, 0] = float("nan")
    one, two = VACE(2, 3), VACE(2, 3)
    one(bad_z, y, bad_f)
    two(z[:4], y[:4], f[:4])
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_features_without_scatter_give_tau_one() -> None:
    loss = VACE(3, 2)
    loss(torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 2, 2]), torch.ones(6, 2))
    assert loss.class_temperatures().tolist() == [1, 1, 1]
    noise = 1e-8 * torch.randn(6, 2, dtype=torch.float64)  # a scatter of rounding errors is none
    loss(torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 2, 2]), noise + loss.statistics.mean.double()[[0, 0, 1, 1, 2, 2]])
    assert loss.statistics.scatter.max() > 0
    assert loss.class_temperatures().tolist() == [1, 1, 1]


def test_mixed_rows_stay_out_of_the_statistics() -> None:
    f, z = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    y1, y2 = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 0, 0, 1])
    lam = torch.tensor([1.0, 0.3, 0.0, 1.0], dtype=torch.float64)  # row 1 is a mixture of two images of one class
    mixed, plain = VACE(2, 3), VACE(2, 3)
    value = mixed(z, MixedTarget(y1, y2, lam), f)
    rows = [0, 2, 3]
    plain(z[rows], torch.tensor([0, 0, 1]), f[rows])
    torch.testing.assert_close(mixed.statistics.mean, plain.statistics.mean)
    q = lam[:, None] * torch.eye(2)[y1] + (1 - lam[:, None]) * torch.eye(2)[y2]
    expected = -(q * (z / plain.class_temperatures()).log_softmax(1)).sum(1).mean()
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)


def test_rows_of_soft_probabilities_stay_out_of_the_statistics_too() -> None:
    f, z = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    q = torch.tensor([[1.0, 0.0], [0.7, 0.3], [0.0, 1.0], [1.0, 0.0]])
    soft, plain = VACE(2, 3), VACE(2, 3)
    soft(z, q, f)
    plain(z[[0, 2, 3]], torch.tensor([0, 1, 0]), f[[0, 2, 3]])
    assert all(torch.equal(a, b) for a, b in zip(soft.state_dict().values(), plain.state_dict().values(), strict=True))


@pytest.mark.parametrize("gauge", ["none", "mean"])
@pytest.mark.parametrize("conv", [False, True])
def test_folded_head_gives_the_adjusted_logits(gauge: str, conv: bool) -> None:
    loss = trained(gauge)
    head = (nn.Conv2d(6, 5, 1) if conv else nn.Linear(6, 5)).double()
    f = torch.randn(7, 6, 1, 1, dtype=torch.float64) if conv else torch.randn(7, 6, dtype=torch.float64)
    expected = loss.adjust_logits(head(f)).detach()
    assert loss.fold_into(head) is head
    torch.testing.assert_close(head(f).detach(), expected, rtol=1e-10, atol=1e-12)


def test_gauge_max_keeps_the_argmax_and_cannot_be_folded() -> None:
    loss = trained("max")
    z = torch.randn(500, 5, dtype=torch.float64)
    assert torch.equal(loss.adjust_logits(z).argmax(1), z.argmax(1))
    with pytest.raises(ConfigError, match="not linear"):
        loss.fold_into(nn.Linear(6, 5))


def test_frozen_sbar_keeps_the_first_mean_after_warm_up() -> None:
    f, y = torch.tensor([[0.0], [2.0], [0.0], [4.0]]), torch.tensor([0, 0, 1, 1])
    loss = VACE(2, 1, freeze_sbar=True, warmup_steps=1, tau_max=100.0)
    loss(torch.zeros(4, 2), y, f)
    assert loss.class_temperatures().tolist() == [1, 1]
    loss(torch.zeros(4, 2), y, f)
    sbar = float(loss.frozen_sbar)
    for _ in range(60):
        loss(torch.zeros(4, 2), y, 10 * f)
    assert float(loss.frozen_sbar) == sbar > 0
    assert min(loss.class_temperatures().tolist()) > 10  # scatter grew 100-fold, its yardstick did not


def test_state_survives_a_save_and_a_load() -> None:
    loss = trained()
    other = VACE(5, 6).double()
    other.load_state_dict(loss.state_dict())
    z = torch.randn(4, 5)
    assert torch.equal(other.adjust_logits(z), loss.adjust_logits(z))


def test_half_keeps_the_statistics_in_float32() -> None:
    loss = VACE(2, 4).half()
    value = loss(torch.randn(4, 2).half(), torch.tensor([0, 0, 1, 1]), torch.full((4, 4), 60000.0).half())
    assert value.dtype == torch.float32 == loss.statistics.mean.dtype
    assert torch.isfinite(value)
    assert float(loss.statistics.mean[0, 0]) == float(torch.tensor(60000.0).half())


def test_contradictory_options_are_refused() -> None:
    for options in ({"lam": 0.5, "b": 1.0}, {"mode": "explicit"}, {"mode": "centered", "a": 1.0}, {"rho": 0.0},
                    {"tau_min": 3.0}, {"gauge": "meam"}, {"mode": "center"}):  # fmt: skip
        with pytest.raises(ConfigError):
            VACE(3, 2, **options)


def test_bound_that_holds() -> None:
    """|L_VACE - L_CE| <= 2 max|z| max|1 - 1/tau|. L_VACE <= L_CE + max log tau does not hold: (10, 9), y = 0."""
    loss = VACE(2, 1)
    loss.class_temperatures = lambda: torch.tensor([2.0, 1.0])  # type: ignore[method-assign]
    z, y = torch.tensor([[10.0, 9.0]]), torch.tensor([0])
    vace, ce = loss.eval()(z, y, torch.zeros(1, 1)).item(), create_loss("ce", num_classes=2)(z, y).item()
    assert vace == pytest.approx(4.018, abs=1e-3)
    assert vace > ce + torch.tensor(2.0).log().item()
    assert abs(vace - ce) <= 2 * 10 * 0.5


def test_frequency_takes_the_place_of_scatter_as_a_control() -> None:
    """Counts 1, 2, 4: 1/n = 1, .5, .25, mean 7/12; r = 12/7, 6/7, 3/7; tau = 1 + .5 r once there are steps."""
    loss = VACE(3, 2, follows="frequency", class_counts=[1, 2, 4])
    loss(torch.zeros(3, 3), torch.tensor([0, 1, 2]), torch.randn(3, 2))
    loss(torch.zeros(3, 3), torch.tensor([0, 1, 2]), torch.randn(3, 2))
    assert loss.class_temperatures().tolist() == pytest.approx([1 + 6 / 7, 1 + 3 / 7, 1 + 3 / 14])
    assert "rarity" not in loss.state_dict()
    with pytest.raises(ConfigError, match="needs class_counts"):
        VACE(3, 2, follows="frequency")
