"""The pace of a backbone is a positive number of seconds."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("timm")

from calibrant.train.heads.features.backbone import load_backbone
from calibrant.train.heads.features.speed import seconds_an_image


def test_every_image_takes_time() -> None:
    small = load_backbone("test_resnet", pretrained=False, input_size=(32, 32))
    assert 0 < seconds_an_image(small, torch.device("cpu")) < 60
    assert small.training is False
