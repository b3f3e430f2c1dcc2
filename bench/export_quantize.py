"""int8 on a real backbone: lite0 with ImageNet weights, a linear head for a folder of images, then `quantize`.

    python bench/export_quantize.py --weights tf_efficientnet_lite0.safetensors --data cub100 --json quantize.json

--data: DIR/train/CLASS/*.jpg and DIR/test/CLASS/*.jpg. Prints the table of every setting tried, what the issue asks for
beside it, and whether torch and the float file agree on every test image. One thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from torch import nn

from calibrant.calibration import fit
from calibrant.export import edit, export_onnx
from calibrant.export.measure import run_logits
from calibrant.export.parity import softmax
from calibrant.export.quantize import Data, quantize, row
from calibrant.export.quantize_report import lines
from calibrant.preprocessing import Preprocessing, open_image
from calibrant.progress import progress

PREPROCESSING = Preprocessing((224, 224), 256, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def read(folder: Path, classes: list[str], per_class: int | None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    found = [(f, k) for k, c in enumerate(classes) for f in sorted((folder / c).iterdir())[:per_class]]
    pixels = np.empty((len(found), 224, 224, 3), np.uint8)
    for i, (file, _) in enumerate(progress(found, what=f"reading {folder.name}")):
        pixels[i] = PREPROCESSING.pixels(open_image(file))
    return pixels, np.array([k for _, k in found])


def features(network: nn.Module, pixels: NDArray[np.uint8]) -> torch.Tensor:
    parts = []
    with torch.inference_mode():
        for start in progress(range(0, len(pixels), 16), what="features"):
            x = torch.from_numpy(PREPROCESSING.normalise(pixels[start : start + 16]))
            parts.append(network.forward_head(network.forward_features(x), pre_logits=True))
    return torch.cat(parts).clone()


def train_head(x: torch.Tensor, y: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a multinomial logistic head for the features as they are; the penalty is chosen on a fifth."""
    mean, std = x.mean(0), x.std(0) + 1e-6
    scaled = (x - mean) / std
    held = torch.zeros(len(y), dtype=torch.bool)
    held[torch.randperm(len(y))[: len(y) // 5]] = True

    def solve(rows: torch.Tensor, penalty: float) -> nn.Linear:
        head = nn.Linear(x.shape[1], classes)
        nn.init.zeros_(head.weight)
        optimizer = torch.optim.LBFGS(head.parameters(), max_iter=100, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            value = nn.functional.cross_entropy(head(scaled[rows]), y[rows]) + penalty / 2 * head.weight.square().sum()
            value.backward()
            return value

        optimizer.step(closure)
        return head

    def loss_outside(penalty: float) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(solve_kept(penalty)(scaled[held]), y[held]))

    def solve_kept(penalty: float) -> nn.Linear:
        with torch.enable_grad():
            return solve(~held, penalty)

    head = solve(torch.ones_like(held), min((1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), key=loss_outside))
    weight = (head.weight / std).detach()
    return weight, head.bias.detach() - weight @ mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--per-class", type=int, help="fewer images, to try the script")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    classes = sorted(d.name for d in (options.data / "train").iterdir() if d.is_dir())
    train, train_labels = read(options.data / "train", classes, options.per_class)
    test, labels = read(options.data / "test", classes, options.per_class)
    network = timm.create_model(
        "tf_efficientnet_lite0", pretrained=True, pretrained_cfg_overlay={"file": str(options.weights)}
    ).eval()
    weight, bias = train_head(features(network, train), torch.from_numpy(train_labels), len(classes))
    network.reset_classifier(len(classes))
    with torch.no_grad():
        network.classifier.weight.copy_(weight)
        network.classifier.bias.copy_(bias)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "float.onnx"
        export_onnx(network, path, class_names=classes, preprocessing=PREPROCESSING, real_images=test[::90])
        z = run_logits(path, test)
        expected = (features(network, test) @ weight.T + bias).numpy()
        same = int((z.argmax(1) == expected.argmax(1)).sum())
        worst = float(np.abs(softmax(z) - softmax(expected)).max())
        print(f"float file against torch: {same} of {len(z)} winners equal, probabilities within {worst:.1e}")
        some = np.sort(np.random.default_rng(0).permutation(len(train))[:512])
        data = Data(train[some], test, labels)
        half = data.halves()[0]
        edit.recalibrate(path, fit("temperature", z[half], labels[half]))
        start = time.process_time()
        result = quantize(path, Path(scratch) / "int8.onnx", data)
        print("\n".join(lines(result, Path("int8.onnx"))))
        print(f"{time.process_time() - start:.0f} s of CPU")
        found = row(result.chosen, result.trials[0])
        print("asked: >= 2.0x at batch 8, accuracy within 0.5 point, agreement >= .96, where clear >= .99")
        if options.json:
            report = {"winners_equal": same, "images": len(z), "float_difference": worst, **result.to_dict()}
            options.json.write_text(json.dumps({**report, "chosen_row": found}, indent=2))


if __name__ == "__main__":
    main()
