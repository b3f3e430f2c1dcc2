from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.losses import FeDLaSLS, FeDLaSMbLS, create_loss

RUNS = [f"{kind}_{size}" for kind in ("ls", "mbls") for size in ("C5_B8", "C10_B64", "C200_B8")]


def start(g: Any, name: str, **options: Any) -> FeDLaSLS | FeDLaSMbLS:
    m = g.meta
    if name == "mbls":
        options["margin"] = m["margin"]
    loss = create_loss(
        f"fedlas-{name}", num_classes=m["C"], alpha=m["alpha"], beta=m["beta"], momentum=m["theta"], **options
    )
    loss.load_state_dict(
        {k.removeprefix("init."): g.tensor(k, torch.float32) for k in g.arrays if k.startswith("init.")}
    )
    return loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("run", RUNS)
def test_training_run_equals_the_authors_code(run: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    """Their state loads under their names; loss, gradients of logits and gate, averages, psi, gamma, alpha."""
    g = golden(f"fedlas_{run}")
    m, double = g.meta, dtype == torch.float64
    loss = start(g, run.split("_")[0]).to(dtype)
    opt = torch.optim.SGD(loss.parameters(), lr=m["gate_sgd_lr"])
    logits, features, targets = g.tensor("logits", dtype), g.tensor("features", dtype), g.labels("targets")
    grad_at = {"atol": 1e-6 if double else 1e-4}
    for t in range(m["T"]):
        z = logits[t].clone().requires_grad_()
        before = {k: v.clone() for k, v in loss.state_dict().items()}
        alpha, psi, gamma = loss.smoothing(z, features[t])
        loss.load_state_dict(before)
        opt.zero_grad()
        value = loss(z, targets[t], features[t])
        value.backward()
        np.testing.assert_allclose(value.item(), g["loss"][t], rtol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(z.grad, g["grad_logits"][t], **grad_at)
        np.testing.assert_allclose(
            torch.cat([p.grad.flatten() for p in loss.parameters()]), g["gate_grad_flat"][t], **grad_at
        )
        np.testing.assert_allclose(loss.nci.batch_mean.item(), g["nci_mean"][t], atol=1e-9 if double else 1e-4)
        np.testing.assert_allclose(loss.nci.batch_std.item(), g["nci_std"][t], atol=1e-9 if double else 1e-4)
        np.testing.assert_array_equal(psi.detach(), g["psi"][t])
        np.testing.assert_allclose(gamma, g["gamma"][t], atol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(alpha.detach(), g["alpha"][t], atol=1e-6)
        if "loss_none" in g.arrays:
            loss.load_state_dict(before)
            loss.reduction = "none"
            np.testing.assert_allclose(
                loss(z, targets[t], features[t]).detach(), g["loss_none"][t], rtol=1e-4, atol=1e-6
            )
            loss.reduction = "mean"
        opt.step()
    loss.eval()
    value = loss(logits[-1], targets[-1], features[-1])
    np.testing.assert_allclose(value.item(), g["eval_loss"], rtol=1e-6 if double else 1e-4)


@pytest.mark.parametrize("kind", ["ls", "mbls"])
def test_one_row_makes_the_authors_code_nan_for_good_and_ours_not(kind: str, golden: Callable[[str], Any]) -> None:
    g = golden(f"fedlas_{kind}_C10_B1_nan")
    theirs, ours = start(g, kind, single_row_nan=True).double(), start(g, kind).double()
    for t in range(g.meta["T"]):
        row = g.tensor("logits")[t], g.labels("targets")[t], g.tensor("features")[t]
        assert math.isnan(theirs(*row).item())
        assert math.isnan(g["loss"][t])
        assert torch.isfinite(ours(*row))
        np.testing.assert_allclose(ours.nci.batch_mean.item(), g["nci_mean"][t], atol=1e-9)
        assert ours.nci.batch_std.item() == g["init.NCI.batch_std"][0]
    row = g.tensor("logits")[-1], g.labels("targets")[-1], g.tensor("features")[-1]
    assert math.isnan(g["eval_loss"])
    assert math.isnan(theirs.eval()(*row).item())
    assert torch.isfinite(ours.eval()(*row))


def test_averages_by_hand() -> None:
    """Norms 3 and 7: mean 5, sample deviation sqrt 8. theta .95 weighs the new batch."""
    loss = FeDLaSLS(2)
    loss(torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
    assert loss.nci.batch_mean.item() == pytest.approx(0.95 * 5 + 0.05 * 20)
    assert loss.nci.batch_std.item() == pytest.approx(0.95 * 8**0.5 + 0.05 * 100)


def test_rows_with_norms_that_are_not_finite_are_left_out_of_the_averages() -> None:
    z, y, f = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), torch.rand(4, 3)
    bad = f.clone()
    bad[1, 2], bad[3, 0] = float("nan"), float("inf")
    one, two = FeDLaSLS(2), FeDLaSLS(2)
    one(z, y, bad)
    two(z[[0, 2]], y[[0, 2]], f[[0, 2]])
    assert one.nci.batch_mean.item() == two.nci.batch_mean.item()
    assert one.nci.batch_std.item() == two.nci.batch_std.item()


def test_a_mean_that_overflows_is_not_taken_in() -> None:
    loss = FeDLaSLS(2)
    f = torch.tensor([[3e38, 0.0], [3e38, 0.0]])
    assert not f.abs().sum(1).mean().isfinite()
    loss(torch.zeros(2, 2), torch.tensor([0, 1]), f)
    assert loss.nci.batch_mean.item() == 20


def test_first_batch_start_forgets_20_and_100_at_once() -> None:
    loss = FeDLaSLS(2, momentum=0.001, init="first_batch")
    batch = torch.zeros(2, 2), torch.tensor([0, 1]), torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    loss(batch[0][:1], batch[1][:1], batch[2][:1])  # one row: the mean is known, the deviation not yet
    assert (loss.nci.batch_mean.item(), loss.nci.batch_std.item()) == (3, 100)
    loss(*batch)
    assert loss.nci.batch_mean.item() == pytest.approx(3.002)
    assert loss.nci.batch_std.item() == pytest.approx(8**0.5)


@pytest.mark.parametrize(("indicator", "expected"), [("l1", 7.0), ("msp", None), ("max-logit", 3.0)])
def test_what_the_indicator_measures(indicator: Any, expected: float | None) -> None:
    loss = FeDLaSLS(3, indicator=indicator, momentum=1.0)
    z = torch.tensor([[1.0, 3.0, 2.0]])
    f = torch.tensor([[-3.0, 4.0]]) if indicator == "l1" else None
    loss(z, torch.tensor([0]), f)
    if expected is None:
        expected = z.softmax(1).max().item()
    assert loss.nci.batch_mean.item() == pytest.approx(expected)
    assert loss.needs_features == (indicator == "l1")


def test_gate_gets_the_gradient_of_the_formula() -> None:
    """dL/dpsi_i = 2 A beta sigma'(beta psi gamma) gamma_i (E_i - CE_i) / B, passed on to u unchanged."""
    torch.manual_seed(0)
    loss = FeDLaSLS(4, alpha=0.2, beta=2.0).double()
    z, y, f = torch.randn(6, 4).double(), torch.randint(0, 4, (6,)), torch.randn(6, 3).double()
    _, psi, gamma = loss.smoothing(z, f)
    loss.eval()
    gate = loss.gate

    class Fixed(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return psi

    loss.gate = Fixed()  # type: ignore[assignment]
    psi.requires_grad_()
    value = loss(z, y, f)
    (grad,) = torch.autograd.grad(value, psi)
    log_p = z.log_softmax(1)
    s = (2.0 * psi.detach() * gamma).sigmoid()
    expected = 2 * 0.2 * 2.0 * s * (1 - s) * gamma * (-log_p.mean(1) + log_p.gather(1, y[:, None])[:, 0]) / 6
    torch.testing.assert_close(grad, expected)
    # straight through: psi is a sign, and moves u = tanh((o_1 - o_0) / 2) by its full gradient
    z1 = z[:1]
    out = torch.nn.functional.linear(
        torch.nn.functional.leaky_relu(gate.fc_in(z1), 0.01), gate.fc_out.weight, gate.fc_out.bias
    )
    u = out.softmax(1)[:, 1] - out.softmax(1)[:, 0]
    (through,) = torch.autograd.grad(gate(z1).sum(), gate.fc_out.bias)
    (direct,) = torch.autograd.grad(u.sum(), gate.fc_out.bias)
    assert gate(z1).item() == u.sign().item()
    torch.testing.assert_close(through, direct)


def test_logits_get_no_gradient_through_alpha() -> None:
    """With alpha_i given as constants the logit gradient is the same."""
    torch.manual_seed(0)
    loss = FeDLaSMbLS(4, margin=1.0).double()
    z, y, f = torch.randn(6, 4).double().mul(3).requires_grad_(), torch.randint(0, 4, (6,)), torch.randn(6, 3).double()
    loss(z, y, f).backward()
    alpha = loss.eval().smoothing(z, f)[0].detach()
    other = z.detach().clone().requires_grad_()
    gap = (other.max(1, keepdim=True).values - other - 1).relu().mean(1)
    ce = -other.log_softmax(1).gather(1, y[:, None])[:, 0]
    ((1 - alpha) * ce + alpha * gap).mean().backward()
    torch.testing.assert_close(z.grad, other.grad)


def test_sum_over_classes_is_c_times_the_mean() -> None:
    torch.manual_seed(0)
    mean, total = FeDLaSMbLS(4, margin=1.0), FeDLaSMbLS(4, margin=1.0, class_reduction="sum")
    z = torch.randn(6, 4)
    torch.testing.assert_close(total.penalty(z, z), 4 * mean.penalty(z, z))


def test_shares_and_flip_rate_of_the_gate() -> None:
    loss = FeDLaSLS(2)
    decisions = [torch.tensor([1.0, -1.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, -1.0, 1.0])]

    class Scripted(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return decisions.pop(0)

    loss.gate = Scripted()  # type: ignore[assignment]
    batch = torch.zeros(4, 2), torch.zeros(4).long(), torch.randn(4, 3)
    loss(*batch, indices=torch.tensor([5, 1, 2, 9]))
    first = loss.diagnostics()
    assert (first["overconfident_share"], first["underconfident_share"]) == (0.5, 0.25)
    assert math.isnan(first["flip_rate"])  # nothing to compare with yet
    loss(*batch, indices=torch.tensor([5, 1, 2, 9]))
    second = loss.diagnostics()
    assert second["flip_rate"] == pytest.approx(2 / 3)  # sample 9 had no decision before
    assert second["overconfident_share"] == 0.75
    assert math.isnan(loss.diagnostics()["overconfident_share"])


def test_image_norms_serve_all_positions_of_dense_logits() -> None:
    torch.manual_seed(0)
    one, two = FeDLaSLS(3), FeDLaSLS(3)
    two.load_state_dict(one.state_dict())
    z, y, f = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5)), torch.randn(2, 7)
    value = one(z, y, f)
    assert value.item() == pytest.approx(two(z, y, f[:, :, None, None].expand(-1, -1, 4, 5)).item(), rel=1e-6)


def test_strengths_that_could_turn_negative_are_refused() -> None:
    for options in ({"alpha": 0.5}, {"alpha": -0.1}, {"indicator": "l2"}, {"gate_hidden": 0}, {"momentum": 1.5}):
        with pytest.raises(ConfigError):
            FeDLaSLS(3, **options)
    with pytest.raises(ConfigError, match="num_classes"):
        FeDLaSLS(1)


def test_mean_alpha_is_reported_and_starts_anew_after_the_call() -> None:
    """beta 0: alpha_i = 2 A sigmoid(0) = A for every row."""
    loss = FeDLaSLS(4, alpha=0.2, beta=0.0)
    z, f = torch.randn(6, 4), torch.randn(6, 3)
    for _ in range(2):
        loss(z, torch.arange(6) % 4, f)
    assert loss.diagnostics()["mean_alpha"] == pytest.approx(0.2, rel=1e-6)
    assert math.isnan(float(loss.diagnostics()["mean_alpha"]))  # type: ignore[arg-type]


def test_state_of_before_mean_alpha_still_loads() -> None:
    loss = FeDLaSLS(4)
    state = {k: v for k, v in loss.state_dict().items() if k != "alpha_sum"}
    FeDLaSLS(4).load_state_dict(state)
