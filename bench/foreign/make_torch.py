"""Foreign files of PyTorch's exporters, and of the tools that rewrite such files.

    python bench/foreign/digits.py DIR/digits.npz
    python bench/foreign/make_torch.py DIR/digits.npz DIR

Needs transformers, onnxslim, onnxsim and onnxconverter-common beside Calibrant's `train` extra.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SIZE = 24
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Small(nn.Module):
    """The network of a tutorial, which ends in a softmax."""

    def __init__(self, *, softmax: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Flatten(), nn.Dropout(0.2),
        )  # fmt: skip
        self.fc = nn.Linear(12 * 6 * 6, 10)
        self.softmax = softmax

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.fc(self.body(x))
        return z.softmax(1) if self.softmax and not self.training else z


class FromTransformers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=SIZE,
            patch_size=6, num_labels=10, attn_implementation="eager",
        )  # fmt: skip
        self.network = ViTForImageClassification(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.network(pixel_values).logits
        return logits


def scaled(x: NDArray[np.uint8], mean: object, std: object, *, bgr: bool = False) -> Tensor:
    y = (torch.from_numpy(x).float() / 255 - torch.tensor(mean)) / torch.tensor(std)
    y = y.permute(0, 3, 1, 2)
    return y.flip(1).contiguous() if bgr else y.contiguous()


def fit(network: nn.Module, x: Tensor, y: Tensor, *, epochs: int = 40, lr: float = 3e-3) -> nn.Module:
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return network.eval()


def script(network: nn.Module, out: Path, *, opset: int, names: tuple[str, str] = ("input", "output")) -> None:
    free = {names[0]: {0: "batch"}, names[1]: {0: "batch"}}
    torch.onnx.export(
        network, (torch.zeros(2, 3, SIZE, SIZE),), str(out), dynamo=False, opset_version=opset,
        input_names=[names[0]], output_names=[names[1]], dynamic_axes=free,
    )  # fmt: skip


def dynamo(network: nn.Module, out: Path, *, opset: int) -> None:
    torch.onnx.export(
        network, (torch.zeros(2, 3, SIZE, SIZE),), str(out), dynamo=True, opset_version=opset, verbose=False,
        external_data=False, dynamic_shapes=({0: torch.export.Dim("batch")},),
    )  # fmt: skip


def quantized(source: Path, out: Path, rows: NDArray[np.float32]) -> None:
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(np.split(rows, len(rows) // 50))

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            part = next(self.left, None)
            return None if part is None else {"input": part}

    quantization.quantize_static(str(source), str(out), Reader(), quant_format=quantization.QuantFormat.QDQ)


def main() -> None:
    archive, folder = np.load(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    pixels, labels = archive["x_train"], torch.from_numpy(archive["y_train"])
    imagenet, plain = scaled(pixels, MEAN, STD), scaled(pixels, 0.0, 1.0, bgr=True)
    torch.manual_seed(1)
    tutorial = fit(Small(softmax=True), imagenet, labels)
    script(tutorial, folder / "torchscript-softmax.onnx", opset=11)
    torch.manual_seed(1)
    bgr = fit(Small(softmax=False), plain, labels)
    dynamo(bgr, folder / "dynamo-bgr.onnx", opset=18)
    torch.manual_seed(1)
    vit = fit(FromTransformers(), scaled(pixels, 0.5, 0.5), labels, epochs=80)
    script(vit, folder / "transformers-vit.onnx", opset=17, names=("pixel_values", "logits"))
    vit.network.save_pretrained(folder / "vit")  # type: ignore[operator, union-attr]
    (folder / "vit" / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": SIZE, "width": SIZE},
        "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }))  # fmt: skip
    quantized(folder / "torchscript-softmax.onnx", folder / "onnxruntime-qdq.onnx", imagenet.numpy())
    rewritten(folder)


def rewritten(folder: Path) -> None:
    import onnxsim
    import onnxslim
    from onnxconverter_common import float16
    from onnxruntime.transformers import optimizer

    half = float16.convert_float_to_float16(onnx.load(str(folder / "torchscript-softmax.onnx")), keep_io_types=True)
    onnx.save(half, str(folder / "float16.onnx"))
    onnx.save(onnxslim.slim(str(folder / "dynamo-bgr.onnx")), str(folder / "onnxslim.onnx"))
    simple, _ = onnxsim.simplify(onnx.load(str(folder / "transformers-vit.onnx")))
    onnx.save(simple, str(folder / "onnxsim.onnx"))
    made = optimizer.optimize_model(
        str(folder / "transformers-vit.onnx"), model_type="vit", num_heads=2, hidden_size=16, opt_level=1
    )
    made.save_model_to_file(str(folder / "transformer-optimiser.onnx"))


if __name__ == "__main__":
    main()
