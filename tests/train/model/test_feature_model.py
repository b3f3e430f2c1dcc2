from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant.errors import ModelError
from calibrant.train.model.feature_model import FeatureModel, build_model


@pytest.mark.parametrize(
    ("name", "size", "recipe", "layers"),
    [
        ("test_resnet", 32, "plain", 1), ("test_vit", 32, "plain", 1), ("repvit_m0_9", 32, "plain", 1),
        ("levit_128s", 224, "two heads", 2), ("deit_tiny_distilled_patch16_224", 32, "two tokens", 2),
        ("dla46_c", 32, "convolution", 1), ("crossvit_tiny_240", 240, "head per branch", 2),
    ],
)  # fmt: skip
def test_features_and_head_belong_together(name: str, size: int, recipe: str, layers: int) -> None:
    model = build_model(name, 5, input_size=(size, size)).eval()
    for p in model.parameters():  # several heads start at zero, which would agree with anything
        nn.init.normal_(p, 0.02, 0.05)
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        logits, features = model(x)
        expected = model.network(x)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    assert model.recipe == recipe
    assert features.shape == (2, model.feature_dim)
    assert len(model.classifier_layers()) == layers


def test_the_linear_head_maps_the_features_to_the_logits() -> None:
    model = build_model("test_vit", 5, input_size=(32, 32)).eval()
    head = model.classifier_layers()[0]
    nn.init.normal_(head.weight)  # type: ignore[arg-type]
    logits, features = model(torch.randn(3, 3, 32, 32))
    torch.testing.assert_close(head(features), logits)
    assert head.weight.shape == (5, model.feature_dim)  # type: ignore[union-attr]


def test_the_probe_leaves_head_weights_and_mode_as_they_were() -> None:
    torch.manual_seed(0)
    network = build_model("test_resnet", 4, input_size=(32, 32)).network.train()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    FeatureModel(network, input_size=(32, 32))
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_network_that_no_recipe_reproduces_is_refused_by_name() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 4)

        def forward_features(self, x: torch.Tensor) -> torch.Tensor:
            return x

        def forward_head(self, x: torch.Tensor, pre_logits: bool = False) -> torch.Tensor:
            f = x.mean((2, 3))
            return f if pre_logits else self.head(f)

        def get_classifier(self) -> nn.Module:
            return self.head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * self.head(x.mean((2, 3)))  # the logits are not head(features)

    with pytest.raises(ModelError, match="Odd: no known way"):
        FeatureModel(Odd(), input_size=(8, 8))


def test_a_headless_network_is_refused() -> None:
    with pytest.raises(ModelError, match="Sequential has no forward_features"):
        FeatureModel(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), input_size=(2, 2))


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(ModelError, match='no model "resnet5"; did you mean "resnet50'):
        build_model("resnet5", 3)


def test_an_option_that_the_model_does_not_take_is_named() -> None:
    with pytest.raises(ModelError, match="wings"):
        build_model("test_resnet", 3, wings=2)


def test_local_weights_are_loaded_with_a_head_for_other_classes(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    donor = build_model("test_resnet", 1000, input_size=(32, 32)).network
    file = tmp_path / "donor.safetensors"
    save_file({k: v.contiguous() for k, v in donor.state_dict().items()}, file)
    model = build_model("test_resnet", 7, weights=file, input_size=(32, 32))
    assert model.num_classes == 7
    name, value = next(iter(donor.state_dict().items()))
    assert torch.equal(model.network.state_dict()[name], value)
    with pytest.raises(ModelError, match="no such weights file"):
        build_model("test_resnet", 7, weights=tmp_path / "none.safetensors")


def test_weights_that_the_cache_does_not_have_while_the_hub_may_not_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/conftest.py sets HF_HUB_OFFLINE."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"weights of resnet10t cannot be downloaded from here; copy .*--weights"):
        build_model("resnet10t", 5, pretrained=True)
