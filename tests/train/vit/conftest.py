"""The reference outputs, from the shared folder where it exists, else from the copy beside the tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from calibrant.train.vit import ReducedViT, reduce_tokens

HERE = Path(__file__).resolve()
CARRIED = HERE.parents[2] / "golden" / "clca"
SHARED = HERE.parents[3].parent / "shared" / "golden" / "clca"


class Reference:
    """Cases, weights and recorded outputs."""

    def __init__(self) -> None:
        self.full = SHARED.is_dir()
        self.folder = SHARED if self.full else CARRIED
        self.index = json.loads((self.folder / "index.json").read_text())
        self.recorded = np.load(self.folder / "golden.npz")

    @cache  # noqa: B019  (one object for the whole session)
    def weights(self, flavour: str) -> dict[str, NDArray[np.float32]]:
        """Parameter pool of a backbone flavour."""
        if self.full:
            return dict(np.load(self.folder / f"weights_{flavour}.npz"))
        planes = [np.load(self.folder / f"weights_{i}.npz")["planes"] for i in range(5)]
        flat = np.ascontiguousarray(np.concatenate(planes, 1).T).view(np.float32)[:, 0]
        pool, start = {}, 0
        for name, shape in self.index["shapes"].items():
            size = int(np.prod(shape))
            pool[name] = flat[start : start + size].reshape(shape)
            start += size
        return pool

    def build(self, case: dict[str, Any]) -> ReducedViT:
        """The network of a case with the reference weights, in evaluation mode."""
        flavour = case.get("backbone", "plain")
        clr = case.get("num_clr", int(case["config"] == "clc"))
        model = reduce_tokens(
            backbone(flavour),
            case["method"],
            keep_rate=case["keep_rate"],
            locations=tuple(case.get("loc", (3, 6, 9))),
            cla=case.get("cla", False),
            cache_tokens=clr,
            cache_pool=case.get("gap", True) if clr else None,  # "gap" is written for cases without a cache too
            cache_pool_class=case.get("pool_cls", False),
            late_recovery=case.get("last", True),
        )
        load_reference_state(model, self.weights(flavour))
        return model.eval()

    def array(self, case: dict[str, Any], name: str) -> NDArray[Any]:
        """One recorded array of a case."""
        recorded: NDArray[Any] = self.recorded[f"{case['key']}/{name}"]
        return recorded


def load_reference_state(model: ReducedViT, pool: dict[str, NDArray[np.float32]]) -> None:
    """Reference names are our names; longer arrays give their first rows, as the reference's README says."""
    state = {}
    for name, value in model.state_dict().items():
        if name.endswith("num_batches_tracked"):
            state[name] = value
        elif name in ("clc.clr", "clc.clr_pos"):
            state[name] = torch.from_numpy(pool[name][:, : value.shape[1]].copy())
        else:
            state[name] = torch.from_numpy(pool[name][: len(value)].copy())
    model.load_state_dict(state)


def backbone(flavour: str = "plain", **changes: Any) -> VisionTransformer:
    """The small network of the reference."""
    options: dict[str, Any] = {
        "img_size": 112,
        "patch_size": 8,
        "embed_dim": 48,
        "depth": 12,
        "num_heads": 3,
        "num_classes": 10,
    }
    if flavour == "deit3":
        options |= {"no_embed_class": True, "init_values": 1e-5}
    if flavour == "clip":
        options |= {"pre_norm": True, "norm_layer": partial(nn.LayerNorm, eps=1e-5)}
    return VisionTransformer(**{**options, **changes})


@pytest.fixture(autouse=True)
def _one_thread_and_one_seed() -> Iterator[None]:
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def reference() -> Reference:
    """Reference outputs."""
    return Reference()


@pytest.fixture(scope="session")
def images() -> Tensor:
    """The input of the reference: two images."""
    return torch.randn(2, 3, 112, 112, generator=torch.Generator().manual_seed(8))


@pytest.fixture
def make_backbone() -> Callable[..., VisionTransformer]:
    """`backbone`, for tests that build their own network."""
    return backbone


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`case` runs over every evaluation case, `training_case` over the training ones."""
    folder = SHARED if SHARED.is_dir() else CARRIED
    cases = json.loads((folder / "index.json").read_text())["cases"]
    for name, mode in (("case", None), ("training_case", "train")):
        if name in metafunc.fixturenames:
            chosen = [c for c in cases if c.get("mode") == mode]
            metafunc.parametrize(name, chosen, ids=[c["key"] for c in chosen])
