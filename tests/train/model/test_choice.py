"""Which backbone is taken: what was named, what is cached, or none, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("timm")

from huggingface_hub import constants

from calibrant.errors import ConfigError
from calibrant.train.model.choice import SCRATCH, choose


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    import huggingface_hub.file_download as library

    monkeypatch.setattr(library, "HF_HUB_CACHE", str(tmp_path), raising=False)
    return tmp_path


def put(hub: Path, name: str, size: int) -> None:
    repo = hub / f"models--timm--{name}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("local")
    (repo / "snapshots" / "local").mkdir(parents=True)
    (repo / "snapshots" / "local" / "model.safetensors").write_bytes(b"0" * size)


def test_a_file_is_taken_and_named_by_itself_or_by_the_user(tmp_path: Path) -> None:
    found = choose("fast", weights=tmp_path / "resnet18.safetensors")
    assert (found.model, found.origin) == ("resnet18", "file")
    assert "resnet18.safetensors" in found.says()
    with pytest.raises(ConfigError, match="does not tell"):
        choose("fast", weights=tmp_path / "mine.pth")
    with pytest.raises(ConfigError, match=r"no model.*resnet18"):
        choose("fast", model="resnet18x")


def test_nothing_in_reach_means_from_scratch(hub: Path) -> None:
    found = choose("balanced")
    assert (found.model, found.origin, found.pretrained) == (SCRATCH, "none", False)


def test_a_preferred_cached_model_comes_first_and_any_other_after(hub: Path) -> None:
    put(hub, "resnet10t.c3_in1k", 50)
    assert choose("balanced").model == "resnet10t.c3_in1k"
    put(hub, "tf_efficientnet_lite0.in1k", 10)
    found = choose("balanced")
    assert (found.model, found.origin) == ("tf_efficientnet_lite0.in1k", "cache")
