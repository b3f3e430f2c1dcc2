"""Twenty families of timm, with heads scaled so that logits have a spread of 3: untrained ones would pass any graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.calibration import Calibrator
from calibrant.export import Comparison, Trained, export_onnx
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.model.feature_model import build_model

from .conftest import pixels

FAMILIES = {
    "resnet50": "gemm", "tf_efficientnet_lite0": "gemm", "efficientnet_b0": "gemm", "mobilenetv3_small_100": "gemm",
    "convnext_atto": "gemm", "regnety_002": "gemm", "densenet121": "gemm", "levit_128s": "gemm", "repvit_m0_9": "gemm",
    "vit_tiny_patch16_224": "gemm", "deit_tiny_distilled_patch16_224": "logits", "deit3_small_patch16_224": "gemm",
    "swin_tiny_patch4_window7_224": "gemm", "eva02_tiny_patch14_224": "gemm", "mixer_s32_224": "gemm", "dpn68": "gemm",
    "xcit_nano_12_p16_224": "gemm", "mobilevit_xxs": "gemm", "edgenext_xx_small": "gemm", "poolformer_s12": "gemm",
}  # fmt: skip
# Every kind of block that a family has, fewer of each: what an export costs grows with the graph. The others whole.
SHALLOW: dict[str, dict[str, object]] = {
    "convnext_atto": {"depths": (1, 1, 2, 1)}, "densenet121": {"block_config": (2, 2, 2, 2)},
    "levit_128s": {"depth": (1, 1, 1)}, "repvit_m0_9": {"depth": (1, 1, 2, 1)},
    "deit_tiny_distilled_patch16_224": {"depth": 3}, "deit3_small_patch16_224": {"depth": 3},
    "swin_tiny_patch4_window7_224": {"depths": (2, 1, 1, 1)}, "eva02_tiny_patch14_224": {"depth": 3},
    "dpn68": {"k_sec": (1, 1, 2, 1)}, "xcit_nano_12_p16_224": {"depth": 3},
    "edgenext_xx_small": {"depths": (1, 1, 2, 1)},
}  # fmt: skip
NAMES = [f"c{i}" for i in range(10)]


def _fill_statistics(network: nn.Module, x: torch.Tensor) -> None:
    """Batch norms move half-way to the images' own statistics; called again while the logits hardly vary.

    With those of an untrained network the features hardly vary; with the images' alone a channel that hardly varies is
    blown up, and its rounding errors with it.
    """
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 0.5
    network.train()
    network(x)
    network.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FAMILIES))
def test_family_agrees_with_torch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = build_model(name, 10, **SHALLOW.get(name, {})).eval()
    size = network.input_size
    preprocessing = Preprocessing(size, size[0])
    images = pixels(16, seed=1, size=size)
    layers = [m for top in network.classifier_layers() for m in top.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    x = torch.from_numpy(preprocessing.normalise(images))
    with torch.inference_mode():
        for layer in layers:
            nn.init.normal_(layer.weight)
        for _ in range(5):
            _fill_statistics(network, x)
            z = network(x)[0]
            if z.std(0).mean() > 0.02 * z.std():
                break
        spread = z.std()
        for layer in layers:
            layer.weight *= 3.0 / spread
    prior = np.random.default_rng(0).dirichlet(np.ones(10))
    card = export_onnx(
        network, tmp_path / "m.onnx", class_names=NAMES, preprocessing=preprocessing, comparison=Comparison(images[:4]),
        trained=Trained(np.linspace(0.7, 1.5, 10)), train_prior=prior, adjust=1.0,
        calibrator=Calibrator("temperature", 10, {"temperature": 1.3}),
    )  # fmt: skip
    assert card.head is not None
    assert card.head.kind == FAMILIES[name]
    assert card.verify is not None
    assert card.verify["logit_variation"] > 0.03  # 1 % of the spread: a graph that ignores its input would not pass
    difference = card.verify["max_diff"]["probabilities"]
    variation = card.verify["logit_variation"]
    print(f"\n{name}: {difference:.1e} in probabilities, logits vary by {variation:.2f} over images")  # noqa: T201
    assert difference <= 1e-5
