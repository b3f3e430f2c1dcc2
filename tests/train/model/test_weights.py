"""A weights file is loaded whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from calibrant.errors import ModelError
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.weights import offline_if

State = dict[str, Tensor]


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[Callable[[State], State]], Path]:
    """The weights of a small ViT, changed."""

    def write(change: Callable[[State], State]) -> Path:
        torch.manual_seed(0)
        state = timm.create_model("test_vit").state_dict()
        path = tmp_path / "vit.safetensors"
        save_file({k: v.contiguous() for k, v in change(state).items()}, path)
        return path

    return write


def test_a_missing_block_is_refused_by_the_names_of_its_tensors(file_of: Callable[..., Path]) -> None:
    extra = {"blocks.9.x": torch.ones(1)}
    file = file_of(lambda s: {k: v for k, v in s.items() if not k.startswith("blocks.5.")} | extra)
    with pytest.raises(
        ModelError, match=r"lacks 12 of the 78 tensors of test_vit: blocks\.5\.norm1\.weight, "
    ) as caught:
        build_model("test_vit", 3, weights=file)
    assert "and 4 more" in str(caught.value)
    assert "holds blocks.9.x, which it has not" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_missing_norm_is_refused_too(file_of: Callable[..., Path]) -> None:
    file = file_of(lambda s: {k: v for k, v in s.items() if k != "blocks.0.norm2.bias"})
    with pytest.raises(ModelError, match=r"lacks 1 of the 78 tensors of test_vit: blocks\.0\.norm2\.bias;"):
        build_model("test_vit", 3, weights=file)


def test_a_file_without_a_classifier_is_whole(file_of: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    file = file_of(lambda s: {k: v for k, v in s.items() if not k.startswith("head.")})
    with caplog.at_level(logging.WARNING):
        assert build_model("test_vit", 3, weights=file).num_classes == 3
    assert "not used" not in caplog.text


def test_unexpected_tensors_are_named(file_of: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    file = file_of(lambda s: s | {"decoder.weight": torch.ones(2)})
    with caplog.at_level(logging.WARNING):
        build_model("test_vit", 3, weights=file)
    assert "holds decoder.weight, which are not used" in caplog.text


def test_another_model_s_file_is_told_from_a_damaged_one(file_of: Callable[..., Path]) -> None:
    file = file_of(lambda s: {f"other.{k}": v for k, v in s.items()})
    with pytest.raises(ModelError, match="no name in it is one of the network's"):
        build_model("test_vit", 3, weights=file)


def test_asking_the_cache_alone_ends_with_the_call() -> None:
    constants = pytest.importorskip("huggingface_hub").constants
    before = constants.HF_HUB_OFFLINE
    with offline_if(True):
        assert constants.HF_HUB_OFFLINE is True
    assert constants.HF_HUB_OFFLINE is before
