"""Values by hand and properties of the losses on logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses import ACLS, CPC, MDCA, MMCE, DualFocal, Focal, LabelSmoothing, create_loss
from calibrant.train.losses.cpc import binary_exclusion


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("name", "options", "p", "expected"),
    [
        ("focal", {"gamma": 2}, (0.25, 0.75), 0.75**2 * math.log(4)),
        ("flsd53", {}, (0.1, 0.9), 0.9**5 * math.log(10)),
        ("flsd53", {}, (0.3, 0.7), 0.7**3 * -math.log(0.3)),
        ("flsd53", {}, (0.45, 0.55), 0.55**3 * -math.log(0.45)),
        ("flsd53", {"gamma": 1.0}, (0.45, 0.55), 0.55**3 * -math.log(0.45)),
        ("flsd53", {"gamma": 1.0}, (0.6, 0.4), 0.4 * -math.log(0.6)),
        ("dual-focal", {"gamma": 2}, (0.5, 0.3, 0.2), 0.8**2 * math.log(2)),
        ("dual-focal", {"gamma": 2}, (0.2, 0.3, 0.5), 0.8**2 * math.log(5)),
        ("ecp", {"beta": 0.5}, (0.5, 0.5), math.log(2) - 0.5 * math.log(2)),
        ("ls", {"alpha": 0.2}, (0.25, 0.75), 0.8 * math.log(4) + 0.1 * (math.log(4) - math.log(0.75))),
        (
            "mbls",
            {"alpha": 1, "margin": 1},
            (math.exp(-3), 1 - math.exp(-3)),
            3 + (3 + math.log1p(-math.exp(-3)) - 1) / 2,
        ),
    ],
)
def test_one_row_by_hand(name: str, options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    loss = create_loss(name, num_classes=len(p), **options)
    assert loss(logits(*p), torch.tensor([0])).item() == pytest.approx(expected, rel=1e-12)


def test_label_smoothing_is_torchs() -> None:
    z, y = torch.randn(7, 5, dtype=torch.float64), torch.arange(7) % 5
    expected = F.cross_entropy(z, y, label_smoothing=0.1).item()
    assert LabelSmoothing(5, alpha=0.1)(z, y).item() == pytest.approx(expected, rel=1e-12)


def test_acls_ties_all_count_as_the_maximum() -> None:
    z = torch.tensor([[3.0, 3.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = ACLS(3, alpha=1.0, margin=1.0, pos_lambda=1.0, neg_lambda=1.0)(z, torch.tensor([0]))
    ce = F.cross_entropy(z, torch.tensor([0]))
    assert (value - ce).item() == pytest.approx(4 + 4 + 4 / 2)
    (grad,) = torch.autograd.grad(value - ce, z)
    assert grad[0].tolist() == pytest.approx([4, 4, -2])  # both tied entries, and the gap's maximum detached


def test_acls_depends_on_a_shift_unless_told_otherwise() -> None:
    z, y = torch.randn(6, 4, dtype=torch.float64) * 5, torch.arange(6) % 4
    plain, invariant = ACLS(4, margin=2.0), ACLS(4, margin=2.0, shift_invariant=True)
    assert abs(plain(z + 10, y).item() - plain(z, y).item()) > 0.1
    assert invariant(z + 10, y).item() == pytest.approx(invariant(z, y).item(), rel=1e-10)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 3.0])
def test_focal_gradient_is_finite_at_certainty(gamma: float) -> None:
    z = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    Focal(2, gamma=gamma)(z, torch.tensor([0, 0])).backward()
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()


def test_focal_keeps_its_digits_in_float32_on_sure_rows() -> None:
    z = torch.tensor([[9.0, 0.0, -1.0]])
    exact = Focal(3)(z.double(), torch.tensor([0])).item()
    assert Focal(3)(z, torch.tensor([0])).item() == pytest.approx(exact, rel=1e-5)


def test_gamma_zero_and_no_runner_up_reduce_to_simpler_losses() -> None:
    z, y = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 5).argmin(1)
    ce = F.cross_entropy(z, y).item()
    assert Focal(5, gamma=0.0)(z, y).item() == pytest.approx(ce, rel=1e-12)
    lowest = z.argmin(1)  # nothing lies below it
    focal = Focal(5, gamma=5.0)(z, lowest).item()
    assert DualFocal(5)(z, lowest).item() == pytest.approx(focal, rel=1e-12)


def test_mmce_by_hand() -> None:
    """Confidences .9 (right) and .6 (wrong): gaps .1 and -.6, kernel exp(-.3/.4)."""
    z = torch.cat([logits(0.9, 0.1), logits(0.6, 0.4)])
    y = torch.tensor([0, 1])
    term = (0.01 + 0.36 - 2 * 0.06 * math.exp(-0.75)) / 4
    assert MMCE(2)(z, y).item() == pytest.approx(F.cross_entropy(z, y).item() + term, rel=1e-12)
    assert MMCE(2, weighted=True)(z[:1], y[:1]).item() == pytest.approx(-math.log(0.9))


def test_mdca_by_hand_and_on_top_of_focal() -> None:
    """Mean probabilities (.75, .25), class shares (.5, .5)."""
    z, y = torch.cat([logits(0.9, 0.1), logits(0.6, 0.4)]), torch.tensor([0, 1])
    assert MDCA(2, beta=2.0)(z, y).item() == pytest.approx(F.cross_entropy(z, y).item() + 2 * 0.25, rel=1e-12)
    assert MDCA(2, gamma=2.0)(z, y).item() == pytest.approx(Focal(2, gamma=2.0)(z, y).item() + 0.25, rel=1e-12)


def test_cpc_pairs_in_pieces_equal_pairs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = torch.randn(7, 6, dtype=torch.float64, requires_grad=True), torch.arange(7) % 6
    whole = binary_exclusion(z, y)
    (grad,) = torch.autograd.grad(whole.square().sum(), z)
    monkeypatch.setattr("calibrant.train.losses.cpc._PAIRS_AT_ONCE", 50)
    pieces = binary_exclusion(z, y)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(torch.autograd.grad(pieces.square().sum(), z)[0], grad)


def test_cpc_of_equal_logits_is_log_two() -> None:
    """BDC = log 2, BEC = .5 log 2, whatever the number of classes; two classes have no pair left for BEC."""
    for c, bec in ((5, 0.5), (2, 0.0)):
        value = CPC(c)(torch.zeros(3, c, dtype=torch.float64), torch.tensor([0, 1, 1]))
        assert value.item() == pytest.approx(math.log(c) + (1 + bec) * math.log(2), rel=1e-12)
