from __future__ import annotations

import pytest
import torch

from calibrant.train.losses import CRL, CrossEntropy, MixedTarget


def test_ranking_term_by_hand() -> None:
    """Counts 2, 0 (largest 2): c = 1, 0. r = .5, .9. Pairs (0,1) and (1,0): both max(0, -(.5 - .9) + 1) = 1.4."""
    loss = CRL(2)
    loss.memory.make_room(torch.tensor([7]))
    loss.memory.values[3] = 2
    loss.peak.fill_(2)
    p = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    z, y = p.log(), torch.tensor([0, 1])
    value = loss(z, y, indices=torch.tensor([3, 7]))
    assert value.item() - CrossEntropy(2)(z, y).item() == pytest.approx(1.4)


def test_each_row_is_ranked_against_the_next() -> None:
    """c = 1, .5, 0; r = .5, .8, .9. Rows 0, 1: -(.5-.8) + .5, -(.8-.9) + .5; row 2 against 0: (.9-.5) + 1."""
    loss = CRL(2, reduction="none")
    loss.memory.make_room(torch.tensor([2]))
    loss.memory.values[:3] = torch.tensor([4, 2, 0])
    loss.peak.fill_(4)
    r = torch.tensor([0.5, 0.8, 0.9], dtype=torch.float64)
    z, y = torch.stack([r, 1 - r], 1).log(), torch.tensor([0, 0, 0])
    term = loss(z, y, indices=torch.arange(3)) + r.log()
    assert term.tolist() == pytest.approx([0.8, 0.6, 1.4])


def test_history_counts_right_answers_and_is_read_before_it_is_written() -> None:
    loss = CRL(2, weight=5.0)
    z, y = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]), torch.tensor([0, 0, 0])
    index = torch.tensor([4, 0, 2])
    ce = CrossEntropy(2)(z, y).item()
    assert loss(z, y, indices=index).item() == ce
    assert loss.memory.values[[4, 0, 2]].tolist() == [1, 0, 1]
    assert loss(z, y, indices=index).item() > ce
    loss.eval()(z, y, indices=index)
    assert int(loss.peak) == 2


def test_equal_histories_add_nothing() -> None:
    z, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    assert CRL(3)(z, y, indices=torch.arange(4)).item() == CrossEntropy(3)(z, y).item()


def test_mixed_rows_are_not_remembered() -> None:
    loss = CRL(2)
    z = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    loss(
        z,
        MixedTarget(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0.5, 1.0])),
        indices=torch.tensor([0, 1]),
    )
    assert loss.memory.values.tolist()[:2] == [0, 1]


def test_without_indices_it_says_once_that_only_cross_entropy_is_left(caplog: pytest.LogCaptureFixture) -> None:
    loss = CRL(3)
    z, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    for _ in range(2):
        loss(z, y)
    assert ["indices" in r.message for r in caplog.records] == [True]


def test_dense_logits_are_refused() -> None:
    with pytest.raises(ValueError, match="ranks images"):
        CRL(3)(torch.randn(2, 3, 4), torch.zeros(2, 4).long())


def test_negative_indices_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        CRL(2)(torch.randn(1, 2), torch.tensor([0]), indices=torch.tensor([-1]))
