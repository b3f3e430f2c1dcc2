"""A network of one channel sees the brightness of a picture and nothing else of it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from calibrant.errors import ModelError
from calibrant.train import TrainConfig
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.grey import is_grey
from calibrant.train.model.network import build_network

Small = Callable[..., TrainConfig]


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet"])
def test_colours_of_one_brightness_are_one_picture(small: Small, name: str) -> None:
    network, preprocessing = build_network(small("model.in_chans=1", f"model.name={name}", "model.image_size=64"), 3)
    network.eval()
    assert is_grey(network)
    assert is_grey(copy.deepcopy(network))  # as the averaged network is made
    assert len(set(preprocessing.mean)) == len(set(preprocessing.std)) == 1
    x = torch.randn(2, 3, 64, 64)
    luma = (x * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    with torch.no_grad():
        torch.testing.assert_close(network(x)[0], network(luma.expand(-1, 3, -1, -1))[0])
        assert not torch.allclose(network(x)[0], network(x.flip(1))[0])


def test_names_of_weights_stay_and_the_first_layer_has_one_channel() -> None:
    grey, colour = build_model("test_resnet", 3, in_chans=1), build_model("test_resnet", 3)
    assert list(grey.state_dict()) == list(colour.state_dict())
    assert grey.network.conv1[0].weight.shape[1] == 1  # type: ignore[index, union-attr]
    assert not is_grey(colour)


def test_other_numbers_of_channels_are_refused() -> None:
    with pytest.raises(ModelError, match="read as red, green and blue"):
        build_model("test_resnet", 3, in_chans=4)
