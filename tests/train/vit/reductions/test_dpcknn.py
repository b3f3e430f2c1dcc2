"""DPC-KNN: clusters around density peaks; appended tokens stay themselves."""

from __future__ import annotations

from typing import Any

import torch

from calibrant.train.vit.reductions.dpcknn import DPCKNN, assign
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.tokens import Tokens

# Two tight groups of six points on a line, and the middle of each is its densest point.
GROUPS = torch.tensor([0.0, 0.1, 0.2, 0.21, 0.3, 0.4, 10.0, 10.1, 10.2, 10.21, 10.3, 10.4])[None, :, None]


def test_two_groups_become_two_clusters() -> None:
    cluster = assign(GROUPS, 2)[0].tolist()
    assert len(set(cluster[:6])) == len(set(cluster[6:])) == 1
    assert cluster[0] != cluster[6]


def test_a_cluster_is_the_weighted_mean_of_its_members(layer: Any) -> None:
    reduction = DPCKNN(Stage(0, (2 / 12,)), dim=1)
    with torch.no_grad():
        reduction.score.weight.fill_(0.1)
        reduction.score.bias.zero_()
    suffix = torch.tensor([[[77.0]]])
    t = Tokens(torch.cat([torch.full((1, 1, 1), -1.0), GROUPS], 1), 1).append(suffix)
    out = reduction(layer(), t, 12).x.flatten()
    w = (0.1 * GROUPS[0, :, 0]).exp()
    means = [float((w[i] * GROUPS[0, i, 0]).sum() / w[i].sum()) for i in (slice(0, 6), slice(6, 12))]
    assert out[0] == -1
    assert out[-1] == 77
    torch.testing.assert_close(out[1:-1].sort().values, torch.tensor(means), rtol=1e-5, atol=1e-5)


def test_before_the_last_stage_five_neighbours_need_five_clusters() -> None:
    assert DPCKNN(Stage(0, (0.01, 0.5)), dim=1).leaves(196 + 3, 196, 3) == 5 + 3
    assert DPCKNN(Stage(1, (0.5, 0.01)), dim=1).leaves(98, 196, 0) == 1


def test_no_gradient_flows_through_the_choice_of_clusters(layer: Any) -> None:
    x = torch.cat([torch.zeros(1, 1, 1), GROUPS], 1).requires_grad_()
    out = DPCKNN(Stage(0, (2 / 12,)), dim=1)(layer(), Tokens(x, 1), 12)
    (gradient,) = torch.autograd.grad(out.x[0, 1:].sum(), x)
    assert gradient.isfinite().all()
    assert float(gradient.sum()) != 0
