"""int8 on a real backbone: lite0 with ImageNet weights, a linear head for a folder of images, then `quantize`.

    python bench/export_quantize.py --weights tf_efficientnet_lite0.safetensors --data cub100 --json quantize.json

--data: DIR/train/CLASS/*.jpg and DIR/test/CLASS/*.jpg. One thread. --results FILE keeps each seed's row as it is
finished and leaves out the seeds that are in it already; --cache DIR keeps pixels and features; --keep DIR keeps each
seed's two files and their answers to the test images. With --keep and --results alone the throughput of the kept files
is measured again, on a machine that does nothing else, and the ECE is read again from the kept answers.

The protocol, fixed before it was run:
1. The head is multinomial logistic regression on the frozen features; its penalty, of six, is the one with the least
   log loss on a fifth of the head's images.
2. Seed s of 0..4 draws which fifth of the training images is held out. The other four fifths train the head; 512 of
   them, without labels, are what `quantize` measures ranges and corrections on. The held-out fifth fits the float
   file's temperature and is `quantize --data`: it decides the setting and fits the int8 file's temperature.
3. `quantize` runs with its defaults. Float and int8 file then answer all test images, which nothing has seen before.
4. Every seed is reported. Bars: accuracy within 0.5 point, equal winners >= .96, >= .99 where the float file's top two
   are more than 0.1 apart, the int8 file's ECE inside the 95 % interval of the float file's, throughput at batch 8
   >= 2.0x. The interval is of the true ECE and a measured one has noise on top, so the ECE has several readings, all
   reported: freed of noise against the interval (like with like), as measured against it (strict), as measured against
   the percentile bootstrap of the float file's measured ECE, and the paired difference, which must not lie above 0.
   The readings other than the strict one were added after the first results. "twins pass": how many files whose error
   has the same size (or half) but nothing to do with the image would pass the strict reading: what chance it leaves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from torch import nn

from calibrant.atomic import write_text
from calibrant.calibration import evaluate, fit
from calibrant.calibration.compare import compare
from calibrant.calibration.metrics.binned_errors import ece_of
from calibrant.calibration.metrics.rows import read_rows
from calibrant.calibration.softmax import softmax
from calibrant.export import Comparison, edit, export_onnx
from calibrant.export.checks.measure import agreement, quality, run_logits, run_outputs, time_together
from calibrant.export.quantization.candidates import Data, row
from calibrant.export.quantization.quantize import quantize
from calibrant.export.quantization.report import lines
from calibrant.images.decode import open_image
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import progress, table

PREPROCESSING = Preprocessing((224, 224), 256, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
PENALTIES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
RANGE_IMAGES = 512


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

    head = solve(torch.ones_like(held), min(PENALTIES, key=loss_outside))
    weight = (head.weight / std).detach()
    return weight, head.bias.detach() - weight @ mean


class Bench:
    """Backbone, images and features, which all seeds share."""

    def __init__(self, weights: Path, data: Path, cache: Path | None, per_class: int | None) -> None:
        self.cache = cache
        self.classes = sorted(d.name for d in (data / "train").iterdir() if d.is_dir())
        self.network = timm.create_model(
            "tf_efficientnet_lite0", pretrained=True, pretrained_cfg_overlay={"file": str(weights)}
        ).eval()
        self.train, self.train_labels = self.pixels(data / "train", per_class)
        self.test, self.labels = self.pixels(data / "test", per_class)
        self.features = torch.from_numpy(
            self.kept("train_features", lambda: features(self.network, self.train).numpy())
        )
        self.test_features = torch.from_numpy(
            self.kept("test_features", lambda: features(self.network, self.test).numpy())
        )

    def kept(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """From the cache, if there is one."""
        if self.cache is None:
            return make()
        path = self.cache / f"{name}.npy"
        if not path.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            np.save(path, make())
        found: NDArray[Any] = np.load(path, mmap_mode="c")
        return found

    def pixels(self, folder: Path, per_class: int | None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images and labels of one half of the data."""
        found: list[NDArray[np.int64]] = []

        def make() -> NDArray[np.uint8]:
            x, y = read(folder, self.classes, per_class)
            found.append(y)
            return x

        x = self.kept(f"{folder.name}_pixels", make)
        return x, self.kept(f"{folder.name}_labels", lambda: found[0])

    def seed(self, seed: int, scratch: Path) -> dict[str, Any]:
        """One run of the protocol."""
        torch.manual_seed(seed)
        order = np.random.default_rng(seed).permutation(len(self.train))
        held, rest = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
        ranges = np.sort(np.random.default_rng(seed + 1000).permutation(rest)[:RANGE_IMAGES])
        weight, bias = train_head(self.features[rest], torch.from_numpy(self.train_labels[rest]), len(self.classes))
        self.network.reset_classifier(len(self.classes))
        with torch.no_grad():
            self.network.classifier.weight.copy_(weight)
            self.network.classifier.bias.copy_(bias)
        path, small = scratch / "float.onnx", scratch / "int8.onnx"
        export_onnx(
            self.network,
            path,
            class_names=self.classes,
            preprocessing=PREPROCESSING,
            comparison=Comparison(self.test[::90]),
        )
        edit.recalibrate(path, fit("temperature", run_logits(path, self.train[held]), self.train_labels[held]))
        start = time.process_time()
        result = quantize(path, small, Data(self.train[ranges], self.train[held], self.train_labels[held]))
        seconds = time.process_time() - start
        print("\n".join(lines(result, Path("int8.onnx"))), flush=True)
        outputs = [run_outputs(f, self.test, ("probabilities", "logits")) for f in (path, small)]
        first, second = (o["logits"] for o in outputs)
        np.savez(scratch / "test.npz", labels=self.labels, float_logits=first, int8_logits=second)
        torch_logits = (self.test_features @ weight.T + bias).numpy()
        float_logits = run_logits(path, self.test)
        same, clear = agreement(second, first, outputs[0]["probabilities"])
        found = {
            "seed": seed, "images": len(self.labels), "chosen": result.chosen.name, "agreement": same,
            "clear_agreement": clear, **readings(self.labels, first, second),
            "speed_1": row(result.chosen, result.candidates[0])["speed_1"],
            "speed_8": row(result.chosen, result.candidates[0])["speed_8"], "cpu_seconds": seconds,
            "float_winners_equal_torch": int((float_logits.argmax(1) == torch_logits.argmax(1)).sum()),
            "float_difference_torch": float(np.abs(softmax(float_logits) - softmax(torch_logits)).max()),
            "table": result.to_dict(),
        }  # fmt: skip
        return {**found, "misses": misses(found)}


def readings(labels: NDArray[np.int64], first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    """Accuracy and NLL beside the float file's, and every reading of the ECE, from both files' logits."""
    p, q = softmax(first), softmax(second)
    before, after = quality(p, labels, p), quality(q, labels, p)
    paired, rng, n = compare(p, q, labels), np.random.default_rng(0), len(labels)
    draws = [rng.integers(0, n, n) for _ in range(1000)]
    again = [ece(p[rows], labels[rows]) for rows in draws]  # has the noise twice, so it lies high
    error = (second - first) - (second - first).mean(1, keepdims=True)

    def twin(size: float) -> float:
        """Share of files with such an error, of `size` and unrelated to the image, that pass the strict reading."""
        values = [ece(softmax(first + size * error[rng.permutation(n)]), labels) for _ in range(200)]
        return float(np.mean(np.array(values) <= before.ece[2]))

    return {
        **{name: paired[name].to_dict() for name in ("accuracy", "nll", "ece")},
        "ece_place": after.ece_place(before), "ece_freed": [before.ece_freed, after.ece_freed],
        "float_ece_interval": list(before.ece[1:]), "null": evaluate(p, labels).metrics["ece"].to_dict(),
        "float_ece_bootstrap": [float(v) for v in np.quantile(again, [0.025, 0.975])],
        "twins_pass": {"same error": twin(1.0), "half the error": twin(0.5)},
    }  # fmt: skip


def ece(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    return float(ece_of(read_rows(probabilities, labels).bins(15)))


def misses(found: dict[str, Any]) -> list[str]:
    """The bars that a run does not reach."""
    place = found["ece_place"]
    held = {
        "accuracy": found["accuracy"]["difference"] >= -0.005, "agreement": found["agreement"] >= 0.96,
        "clear agreement": found["clear_agreement"] >= 0.99, "throughput": found["speed_8"] >= 2.0,
        "ECE, freed": place["freed"] != "above", "ECE, measured": place["measured"] != "above",
        "ECE, bootstrap": found["ece"]["second"] <= found["float_ece_bootstrap"][1],
        "ECE, paired": place["paired"] != "above",
    }  # fmt: skip
    return [name for name, reached in held.items() if not reached]


def again(found: dict[str, Any], folder: Path, seconds: float = 3.0) -> dict[str, Any]:
    """A seed's row with its kept answers read and its kept files timed again, both in turns, best of repeats."""
    kept = np.load(folder / "test.npz")
    found = {**found, **readings(kept["labels"], kept["float_logits"], kept["int8_logits"])}
    images = np.random.default_rng(0).integers(0, 256, (8, 224, 224, 3), dtype=np.uint8)
    before, after = time_together([folder / "float.onnx", folder / "int8.onnx"], images, seconds=seconds)
    found = {**found, "speed_1": before.one / after.one, "speed_8": before.large / after.large}
    return {**found, "misses": misses(found)}


def report(runs: list[dict[str, Any]]) -> str:
    """One row per seed."""

    def percent(value: float, digits: int = 2) -> str:
        return f"{100 * value:.{digits}f}"

    rows = [
        (
            str(r["seed"]), r["chosen"], percent(r["accuracy"]["first"]), percent(r["accuracy"]["second"]),
            f"{100 * r['accuracy']['difference']:+.2f}", percent(r["agreement"]), percent(r["clear_agreement"]),
            f"{percent(r['ece']['first'])} ({' .. '.join(percent(v, 1) for v in r['float_ece_interval'])})",
            percent(r["ece"]["second"]), " and ".join(percent(v) for v in r["ece_freed"]),
            " .. ".join(percent(v) for v in r["float_ece_bootstrap"]),
            " / ".join(percent(v, 0) for v in r["twins_pass"].values()),
            f"{100 * r['ece']['difference']:+.2f} ({100 * r['ece']['low']:+.2f} .. {100 * r['ece']['high']:+.2f})",
            f"{r['speed_1']:.2f}x", f"{r['speed_8']:.2f}x", ", ".join(r["misses"]) or "none",
        )
        for r in runs
    ]  # fmt: skip
    return table(
        [
            "seed", "setting", "float acc", "int8 acc", "diff", "same top-1", "clear ones", "float ECE (95 %)",
            "int8 ECE", "freed: float, int8", "bootstrap", "twins pass", "paired (95 %)", "batch 1", "batch 8",
            "misses",
        ],
        rows, left=2,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--per-class", type=int, help="fewer images, to try the script")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    if options.results and options.results.exists():
        runs = [json.loads(line) for line in options.results.read_text().splitlines()]
    if options.data is None:
        if options.keep is None or not runs:
            parser.error("--data and --weights, or --keep and --results of an earlier run")
        runs = [again(r, options.keep / f"seed{r['seed']}") for r in runs]
        write_text(options.results, "".join(json.dumps(r) + "\n" for r in runs))
    else:
        bench = Bench(options.weights, options.data, options.cache, options.per_class)
        for seed in sorted(set(options.seeds) - {r["seed"] for r in runs}):
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) if options.keep is None else options.keep / f"seed{seed}"
                folder.mkdir(parents=True, exist_ok=True)
                runs.append(bench.seed(seed, folder))
            if options.results:
                write_text(options.results, "".join(json.dumps(r) + "\n" for r in runs))
    runs.sort(key=lambda r: int(r["seed"]))
    print(report(runs))
    if options.json:
        options.json.write_text(json.dumps(runs, indent=2))


if __name__ == "__main__":
    main()
