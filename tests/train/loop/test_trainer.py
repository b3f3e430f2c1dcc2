"""What a step says of a batch that it cannot take."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from calibrant.errors import ConfigError
from calibrant.train.loop.trainer import Trainer


def test_one_number_a_channel_is_a_line_about_the_batch_size() -> None:
    trainer = object.__new__(Trainer)
    trainer._model = nn.BatchNorm1d(3)
    with pytest.raises(ConfigError, match=r"engine.batch_size: the network's batch norm has one number a channel"):
        trainer._forward(torch.zeros(1, 3))
