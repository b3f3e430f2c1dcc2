from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import ConfigError
from calibrant.train.losses import ArcFace, Center, CosineHead, Prototype, SupCon


def test_cosine_head_gives_cosines_under_autocast_too() -> None:
    torch.manual_seed(0)
    head, f = CosineHead(2048, 5), torch.full((3, 2048), 60.0)
    f[1] *= -1
    expected = F.cosine_similarity(f[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head(f), expected, atol=1e-6, rtol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head(f.half()).dtype == torch.float32
        torch.testing.assert_close(head(f.half()), expected, atol=1e-3, rtol=1e-3)


def test_arcface_target_logit_falls_as_the_angle_grows_over_the_whole_circle() -> None:
    """Without the branch past pi - m it would rise again, and the loss would fall."""
    theta = torch.linspace(0, math.pi, 400, dtype=torch.float64)
    z = torch.stack([theta.cos(), torch.zeros_like(theta)], 1)
    value = ArcFace(2, margin=0.5, scale=5.0, reduction="none")(z, torch.zeros(400).long())
    assert (value.diff() > 0).all()


def test_arcface_without_margin_is_scaled_cross_entropy() -> None:
    z, y = torch.rand(5, 3, dtype=torch.float64) * 1.8 - 0.9, torch.tensor([0, 1, 2, 0, 1])
    value = ArcFace(3, margin=0.0, scale=7.0)(z, y)
    assert value.item() == pytest.approx(F.cross_entropy(7 * z, y).item(), rel=1e-12)


def test_supcon_pulls_one_positive_pair_by_hand() -> None:
    """Rows 0 and 1 of class 0 at 60 degrees, row 2 of class 1 opposite to row 0. T = 1; row 2 has no positive."""
    f = torch.tensor([[1.0, 0.0], [0.5, 3**0.5 / 2], [-1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1])
    a = -(0.5 - math.log(math.exp(0.5) + math.exp(-1)))
    b = -(0.5 - math.log(math.exp(0.5) + math.exp(-0.5)))
    value = SupCon(2, temperature=1.0)(torch.zeros(3, 2), y, 3 * f)
    assert value.item() == pytest.approx((a + b) / 2)


@pytest.mark.parametrize(("rule", "moved"), [("published", 4 - 0.5 * 2 * 1 / 3), ("ema", 3.5)])
def test_centers_move_towards_the_mean_of_their_rows(rule: str, moved: float) -> None:
    """Center 4, rows 2 and 4, mean 3. published: .5 * sum(4 - f) / (1 + 2). The loss comes before the move."""
    loss = Center(2, 1, rate=0.5, rule=rule)
    loss.centers.copy_(torch.tensor([[4.0], [9.0]]))
    loss.seen.fill_(True)
    value = loss(torch.zeros(2, 2), torch.tensor([0, 0]), torch.tensor([[2.0], [4.0]]))
    assert value.item() == pytest.approx(0.5 * (4 + 0) / 2)
    assert loss.centers[:, 0].tolist() == pytest.approx([moved, 9.0])


def test_a_new_class_starts_at_the_mean_of_its_rows() -> None:
    loss = Center(2, 1, rate=0.0)
    loss(torch.zeros(2, 2), torch.tensor([1, 1]), torch.tensor([[2.0], [4.0]]))
    assert loss.centers[:, 0].tolist() == [0, 3]


def test_prototype_scores_are_distances() -> None:
    loss = Prototype(2, 2, temperature=2.0)
    loss.prototypes.data = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    torch.testing.assert_close(loss.logits(torch.tensor([[0.0, 4.0]])), torch.tensor([[-8.0, -4.5]]))
    cosine = Prototype(2, 2, distance="cosine", temperature=0.5)
    cosine.prototypes.data = torch.tensor([[2.0, 0.0], [3.0, 4.0]])
    torch.testing.assert_close(cosine.logits(torch.tensor([[0.0, 4.0]])), torch.tensor([[0.0, 1.6]]))


def test_nonsense_options_are_refused() -> None:
    for make in (
        lambda: SupCon(2, temperature=0.0),
        lambda: Center(2, 1, rule="sgd"),
        lambda: Prototype(2, 2, distance="l1"),
        lambda: ArcFace(2, margin=2.0),
    ):
        with pytest.raises(ConfigError):
            make()
