from __future__ import annotations

import pytest
import torch

from calibrant.errors import ConfigError
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


def test_the_authors_history_is_between_the_worst_sample_and_every_epoch() -> None:
    """Third epoch, counts 2 1 0, smallest 0: c = 2/3, 1/3, 0. r equal, so the terms are |c_i - c_j|: 1/3, 1/3, 2/3."""
    loss = CRL(2, reduction="none", history="epochs")
    loss.memory.make_room(torch.tensor([2]))
    loss.memory.values[:3] = torch.tensor([2, 1, 0])
    loss.on_epoch_start(2, 10)
    z, y = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64), torch.tensor([0, 0, 0])
    term = loss(z, y, indices=torch.arange(3)) - CrossEntropy(2)(z, y)
    assert term.tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3])


def test_where_all_samples_were_mostly_right_one_miss_is_the_whole_range() -> None:
    """Third epoch, counts 2 and 1: smallest 1, so c = (2 - 1) / (3 - 1) and 0. Room for later samples counts not."""
    loss = CRL(2, reduction="none", history="epochs")
    loss.memory.make_room(torch.tensor([1]))
    loss.memory.make_room(torch.tensor([2]))  # four places, of which two are samples
    loss.memory.values[:2] = torch.tensor([2, 1])
    loss.samples.fill_(2)
    loss.on_epoch_start(2, 10)
    z, y = torch.tensor([[1.0, 0.0]] * 2, dtype=torch.float64), torch.tensor([0, 0])
    term = loss(z, y, indices=torch.arange(2)) - CrossEntropy(2)(z, y)
    assert term.tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(ConfigError, match="no history"):
        CRL(2, history="epoch")  # type: ignore[arg-type]


def test_a_state_of_before_the_sample_count_loads() -> None:
    old = CRL(2).state_dict()
    del old["samples"]
    CRL(2).load_state_dict(old)
