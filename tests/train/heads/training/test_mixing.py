from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrant.train.heads.training.mixing import add_noise, head_to_tail, mix, mixup_share, scale_channels, smote


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_noise_has_the_wanted_share_of_each_features_deviation() -> None:
    x = torch.zeros(20000, 2)
    moved = add_noise(x, torch.tensor([1.0, 10.0]), 0.3, rng())
    assert moved.std(0).tolist() == pytest.approx([0.3, 3.0], rel=0.03)
    assert moved.mean(0).tolist() == pytest.approx([0, 0], abs=0.05)


def test_channel_factors_are_uniform_about_one() -> None:
    factors = scale_channels(torch.ones(5000, 3), 0.4, rng())
    assert float(factors.min()) >= 0.6
    assert float(factors.max()) <= 1.4
    assert float(factors.var()) == pytest.approx(0.8**2 / 12, rel=0.05)


def test_tokens_of_an_image_share_a_channels_factor() -> None:
    factors = scale_channels(torch.ones(4, 7, 3), 0.4, rng())
    assert torch.equal(factors, factors[:, :1].expand(4, 7, 3))
    assert len(factors[:, 0].unique()) == 12


def test_mix_by_hand() -> None:
    x = torch.tensor([[0.0, 2.0], [4.0, 6.0]])
    assert mix(x, torch.tensor([1, 0]), 0.75).tolist() == [[1.0, 3.0], [3.0, 5.0]]


def test_mixup_shares_follow_the_beta_law() -> None:
    shares = np.asarray([mixup_share(2.0, g) for g in [rng(3)] for _ in range(4000)])
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert shares.var() == pytest.approx(1 / 20, rel=0.06)  # Beta(2, 2): 1 / (4 (2 * 2 + 1))


def test_smote_fills_classes_with_points_between_neighbours_of_the_class() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [10.0, 0.0], [5.0, 5.0], [9.0, 9.0], [9.0, 10.0], [0.0, 9.0]])
    y = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    new_x, new_y = smote(x, y, 3, fill=1.0, neighbours=1, rng=rng())
    assert torch.bincount(new_y, minlength=3).tolist() == [0, 2, 3]
    assert (new_x[new_y == 1][:, 0] == 9.0).all()  # on the segment from (9, 9) to (9, 10)
    assert ((new_x[new_y == 1][:, 1] >= 9) & (new_x[new_y == 1][:, 1] <= 10)).all()
    assert (new_x[new_y == 2] == torch.tensor([0.0, 9.0])).all()  # no neighbour: repeated


def test_smote_with_one_neighbour_never_reaches_the_second_nearest() -> None:
    x = torch.tensor([[0.0], [1.0], [100.0], *[[v] for v in np.linspace(500, 600, 40)]])
    y = torch.tensor([0] * 3 + [1] * 40)
    new_x, new_y = smote(x, y, 2, fill=1.0, neighbours=1, rng=rng())
    own = new_x[new_y == 0][:, 0]
    assert ((own <= 1.0) | (own > 1.0)).all()
    assert len(own) == 37
    assert ((own <= 1.0) | ((own >= 1.0) & (own <= 100.0))).all()
    assert (own <= 1.0).any()


def test_head_to_tail_moves_tail_rows_only_and_at_most_the_largest_share() -> None:
    x = torch.tensor([[0.0], [0.0], [0.0]]).repeat(1000, 1)
    y = torch.tensor([0, 1, 2]).repeat(1000)
    moved = head_to_tail(
        x, y, pool=torch.tensor([[1.0]]), is_tail=torch.tensor([False, False, True]), share=0.5, largest=0.3, rng=rng()
    )[:, 0]
    assert not moved[y != 2].any()
    tail = moved[y == 2]
    assert float((tail > 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert float(tail.max()) <= 0.3
    assert float(tail[tail > 0].mean()) == pytest.approx(0.15, abs=0.02)
