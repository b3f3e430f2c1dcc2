"""Which epoch is the best one, and what a step says of a batch that it cannot take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from calibrant.errors import ConfigError
from calibrant.train.loop import Trainer, is_better

VAL = {"accuracy": 0.8, "nll": 0.5, "ece": 0.1}


def test_the_first_epoch_is_the_best_so_far() -> None:
    assert is_better(VAL, None, None, by="accuracy")


@pytest.mark.parametrize(("best", "by", "expected"), [(0.7, "accuracy", True), (0.9, "accuracy", False),
                                                      (0.2, "ece", True), (0.05, "ece", False)])  # fmt: skip
def test_the_metric_decides_in_its_own_direction(best: float, by: str, expected: bool) -> None:
    assert is_better(VAL, best, 0.0, by=by) is expected


@pytest.mark.parametrize(("tie", "expected"), [(0.6, True), (0.5, False), (0.4, False)])
def test_equal_metrics_are_told_apart_by_nll(tie: float, expected: bool) -> None:
    """Validation accuracy of few images is often the same in many epochs; the surer one then wins."""
    assert is_better(VAL, 0.8, tie, by="accuracy") is expected


def test_one_number_a_channel_is_a_line_about_the_batch_size() -> None:
    trainer = object.__new__(Trainer)
    trainer._model = nn.BatchNorm1d(3)
    with pytest.raises(ConfigError, match=r"engine.batch_size: the network's batch norm has one number a channel"):
        trainer._forward(torch.zeros(1, 3))
