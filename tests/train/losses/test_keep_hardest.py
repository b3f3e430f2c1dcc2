"""keep_hardest: only the rows with the largest loss count."""

from __future__ import annotations

import math

import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.losses import LOSSES, MixedTarget, create_loss

# Losses of the four rows: log 2, log(1 + e^-2), log(1 + e^2), log(1 + e).
Z = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
Y = torch.tensor([0, 0, 1, 0])
ROWS = [math.log(2), math.log1p(math.exp(-2)), math.log1p(math.exp(2)), math.log1p(math.e)]


@pytest.mark.parametrize(("share", "kept"), [(0.25, [2]), (0.3, [2, 3]), (0.5, [2, 3]), (0.75, [0, 2, 3])])
def test_the_mean_of_the_hardest_rows_by_hand(share: float, kept: list[int]) -> None:
    z = Z.clone().requires_grad_()
    value = create_loss("ce", num_classes=2, keep_hardest=share)(z, Y)
    value.backward()
    assert value.item() == pytest.approx(sum(ROWS[i] for i in kept) / len(kept), rel=1e-12)
    assert z.grad is not None
    assert (z.grad.abs().sum(1) > 0).nonzero()[:, 0].tolist() == kept


def test_the_sum_is_of_the_kept_rows_and_ignored_rows_do_not_count() -> None:
    loss = create_loss("ce", num_classes=2, keep_hardest=0.5, reduction="sum")
    assert loss(Z, Y).item() == pytest.approx(ROWS[2] + ROWS[3], rel=1e-12)
    y = torch.tensor([0, 0, -100, -100])  # of two rows left one is kept
    assert loss(Z, y).item() == pytest.approx(ROWS[0], rel=1e-12)


def test_evaluation_and_the_first_epochs_count_every_row() -> None:
    loss = create_loss("ce", num_classes=2, keep_hardest=0.25, keep_after=2)
    whole = pytest.approx(sum(ROWS) / 4, rel=1e-12)
    for epoch, expected in ((0, whole), (1, whole), (2, pytest.approx(ROWS[2], rel=1e-12))):
        loss.on_epoch_start(epoch, 5)
        assert loss(Z, Y).item() == expected
    assert loss.eval()(Z, Y).item() == whole


@pytest.mark.parametrize("name", [name for name, cls in LOSSES.items() if cls.trains_classifier])
def test_every_loss_waits_for_its_epoch(name: str) -> None:
    torch.manual_seed(0)
    z, f, y = torch.randn(8, 4).tanh(), torch.randn(8, 5), torch.randint(0, 4, (8,))
    values = []
    for share, epoch in ((1.0, 0), (0.3, 0), (0.3, 1)):
        loss = create_loss(name, num_classes=4, feature_dim=5, class_counts=[9, 5, 3, 2], keep_hardest=share)
        torch.manual_seed(1)
        for p in loss.parameters():
            torch.nn.init.normal_(p)
        loss.on_epoch_start(epoch, 9)
        values.append(loss(z, y, f, torch.arange(8)).item())
    assert values[0] == values[1] < values[2]


@pytest.mark.parametrize("soft", ["hard", "mixed", "dense"])
@pytest.mark.parametrize("name", [name for name, cls in LOSSES.items() if cls.trains_classifier])
def test_every_loss_keeps_its_hardest_rows(name: str, soft: str) -> None:
    """Keeping all of them is the loss itself; keeping some is the reduction of the rows with the largest loss."""
    torch.manual_seed(0)
    z, f, y, y2 = torch.randn(8, 4).tanh(), torch.randn(8, 5), torch.randint(0, 4, (8,)), torch.randint(0, 4, (8,))
    target = {"hard": y, "mixed": MixedTarget(y, y2, torch.rand(8)), "dense": torch.rand(8, 4).softmax(1)}[soft]
    assert isinstance(target, torch.Tensor | MixedTarget)
    whole, some, rows = (
        create_loss(name, num_classes=4, feature_dim=5, class_counts=[9, 5, 3, 2], **options)
        for options in ({}, {"keep_hardest": 0.3}, {"reduction": "none"})
    )
    some.load_state_dict(whole.state_dict())
    rows.load_state_dict(whole.state_dict())
    values = rows(z, target, f, torch.arange(8))
    value = some(z, target, f, torch.arange(8))
    assert value >= whole(z, target, f, torch.arange(8)) - 1e-6
    torch.testing.assert_close(value, values.topk(3).values.mean(), rtol=1e-5, atol=1e-6)


def test_shares_that_cannot_be_are_refused() -> None:
    for share in (0.0, 1.5):
        with pytest.raises(ConfigError, match="keep_hardest is"):
            create_loss("ce", num_classes=2, keep_hardest=share)
    with pytest.raises(ConfigError, match="reduction is none"):
        create_loss("ce", num_classes=2, keep_hardest=0.5, reduction="none")
