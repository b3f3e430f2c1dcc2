"""Logits of networks on pictures, to choose a rule of `auto` by: two halves, one to develop on and one to confirm.

    python bench/real_networks.py --data DIR --weights LITE0.safetensors --work DIR2

DIR holds the archives of `bench/density.py`. DIR2 gets `dev-*.npz` and `confirm-*.npz` (logits, labels), one for each
(network, view); what is there is not made again. Networks are trained until they are (nearly) right on all of their own
rows, as networks for CIFAR are: the later half of a Lite0 on 3,000 or 4,000 pictures of CIFAR-10, small residual
networks from scratch, heads on the features of a frozen Lite0 (CIFAR-10, CUB, twenty of its species, PlantDoc),
networks on scikit-learn's digits, as numbers and as pictures. Views: rows as in training, and the same compressed,
blurred, noisy or dark. The halves share no network, and those trained on CIFAR's pictures no judged picture; no network
of the tables of `docs/evidence/calibrators.md` is here.
"""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import nn

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.density import features

Images = np.ndarray  # (rows, 32 or 8, 32 or 8, 3), bytes
Tensors = tuple[torch.Tensor, torch.Tensor]
Logits = Callable[[Images], np.ndarray]


def changed(images: Images, view: str) -> Images:
    def one(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        image = Image.fromarray(pixels)
        if view == "compressed":
            stream = io.BytesIO()
            image.save(stream, "JPEG", quality=25)
            image = Image.open(stream).convert("RGB")
        elif view == "blurred":
            image = image.filter(ImageFilter.GaussianBlur(0.8))
        elif view == "dark":
            image = ImageEnhance.Brightness(image).enhance(0.4)
        elif view == "noisy":
            return np.clip(pixels + rng.normal(0, 12 if len(pixels) == 32 else 60, pixels.shape), 0, 255).astype(
                np.uint8
            )
        return np.asarray(image)

    rng = np.random.default_rng(0)
    return np.stack([one(x, rng) for x in images])


def cifar(data: Path, split: str, rows: slice) -> tuple[Images, np.ndarray]:
    """Some rows of an order drawn once."""
    with np.load(data / "cifar10_jpeg.npz") as file:
        header, bytes_, offsets = file["jpeg_header"].tobytes(), file[f"{split}_bytes"], file[f"{split}_offsets"]
        y = file[f"y_{split}"].astype(np.int64)
    order = np.random.default_rng(7).permutation(len(y))[rows]
    coded = (header + bytes_[offsets[i] : offsets[i + 1]].tobytes() for i in order)
    return np.stack([np.asarray(Image.open(io.BytesIO(c)).convert("RGB")) for c in coded]), y[order]


def trained(
    net: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    epochs: int,
    rate: float,
    decay: float,
    seed: int,
    *,
    flips: bool = False,
) -> None:
    torch.manual_seed(seed)
    net.train()
    optimiser = torch.optim.AdamW(net.parameters(), rate, weight_decay=decay)
    batches = epochs * (len(x) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=batches)
    for _ in range(epochs):
        hits = 0
        for part in torch.randperm(len(x))[: len(x) // 64 * 64].view(-1, 64):
            batch = x[part]
            if flips:
                batch = torch.where(torch.rand(len(batch), 1, 1, 1) < 0.5, batch.flip(3), batch)
            optimiser.zero_grad()
            out = net(batch)
            nn.functional.cross_entropy(out, y[part]).backward()
            optimiser.step()
            schedule.step()
            hits += int((out.argmax(1) == y[part]).sum())
    print(f"right on {hits / (len(x) // 64 * 64):.3f} of its own rows", flush=True)
    net.eval()


def run(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return torch.cat([net(part) for part in x.split(64)])


def pixels(images: Images, size: int) -> torch.Tensor:
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    x = nn.functional.interpolate(x, size=size, mode="bicubic", antialias=True) if size != x.shape[-1] else x
    return x.contiguous(memory_format=torch.channels_last)


def finetuned(
    weights: Path, images: Images, y: np.ndarray, epochs: int, rate: float, decay: float, seed: int
) -> Logits:
    """A Lite0 at 64 pixels whose first three stages stay as they are."""
    import timm
    from safetensors.torch import load_file

    torch.manual_seed(seed)
    lite = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=1000)
    lite.load_state_dict(load_file(weights))
    lite.reset_classifier(10)
    lite = lite.to(memory_format=torch.channels_last)
    front = nn.Sequential(lite.conv_stem, lite.bn1, *lite.blocks[:3]).eval()
    back = nn.Sequential(*lite.blocks[3:], lite.conv_head, lite.bn2, lite.global_pool, lite.classifier)

    def early(some: Images) -> torch.Tensor:
        return torch.cat([run(front, pixels(some[i : i + 64], 64)) for i in range(0, len(some), 64)])

    with torch.no_grad():
        x = early(images).clone()
    trained(back, x, torch.from_numpy(y), epochs, rate, decay, seed)
    return lambda some: run(back, early(some)).numpy()


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(self.norms[0](self.first(x)))
        out: torch.Tensor = torch.relu(self.norms[1](self.second(inside)) + self.skip(x))
        return out


def residual(images: Images, y: np.ndarray, width: int, epochs: int, seed: int) -> Logits:
    size = images.shape[1]
    torch.manual_seed(seed)
    w = width
    net = nn.Sequential(
        nn.Conv2d(3, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(), Block(w, 2 * w, 2), Block(2 * w, 4 * w, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, 10),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    trained(net, pixels(images, size), torch.from_numpy(y), epochs, 0.01, 1e-4, seed, flips=size == 32)
    return lambda some: run(net, pixels(some, size)).numpy()


def head(x: np.ndarray, y: np.ndarray, hidden: int, epochs: int, decay: float, seed: int) -> Logits:
    """Linear where nothing is hidden."""
    torch.manual_seed(seed)
    centre, scale, classes = x.mean(axis=0), x.std(axis=0) + 0.1 * x.std(), int(y.max()) + 1
    inside = (nn.Linear(x.shape[1], hidden), nn.ReLU()) if hidden else ()
    net = nn.Sequential(*inside, nn.Linear(hidden or x.shape[1], classes))
    make = lambda a: torch.from_numpy(((a - centre) / scale).astype(np.float32))  # noqa: E731
    trained(net, make(x), torch.from_numpy(y), epochs, 2e-3, decay, seed)
    return lambda some: run(net, make(some)).numpy()


def of_cifar(data: Path, make: Callable[[Images, np.ndarray], Logits], rows: slice, judged: slice, views: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:  # fmt: skip  # noqa: E501
    logits = make(*cifar(data, "train", rows))
    images, y = cifar(data, "test", judged)
    for view in views.split():
        yield view, logits(changed(images, view)), y


def of_features(data: Path, weights: Path, work: Path, name: str, make: Callable[[np.ndarray, np.ndarray], Logits], views: str, rows: int = 10**9) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:  # fmt: skip  # noqa: E501
    """With PlantDoc, rows that were not trained on are judged beside the test ones, which are few."""
    x, y = features(data, weights, work, name, "train", "clean")
    logits = make(x[:rows], y[:rows])
    for view in views.split():
        fresh, truth = features(data, weights, work, name, "test", view)
        if view == "clean":
            fresh, truth = np.concatenate([fresh, x[rows:]]), np.concatenate([truth, y[rows:]])
        yield view, logits(fresh), truth


def of_digits(hidden: int, rows: int, decay: float, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    own, fresh = order[:rows], order[rows:]
    logits = head(x[own], y[own].astype(np.int64), hidden, 150, decay, seed)
    for view in ("clean", "noisy"):
        changed_rows = x[fresh] + (rng.normal(0, 4, x[fresh].shape) if view == "noisy" else 0)
        yield view, logits(changed_rows), y[fresh].astype(np.int64)


def of_digit_pictures(width: int, rows: int, epochs: int, seed: int, views: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:  # fmt: skip  # noqa: E501
    """A residual network on 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = np.repeat((x.reshape(-1, 8, 8, 1) * 15.9).astype(np.uint8), 3, axis=3)
    order = np.random.default_rng(seed).permutation(len(y))
    y = y.astype(np.int64)
    logits = residual(images[order[:rows]], y[order[:rows]], width, epochs, seed)
    for view in views.split():
        yield view, logits(changed(images[order[rows:]], view)), y[order[rows:]]


def of_birds(data: Path, weights: Path, work: Path, classes: range, hidden: int, decay: float, seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:  # fmt: skip  # noqa: E501
    """A head for some species of CUB, trained on ten pictures of each; others and the test rows are judged."""
    parts = {v: features(data, weights, work, "cub", "test", v) for v in ("clean", "compressed")}
    x, y = features(data, weights, work, "cub", "train", "clean")
    own = np.concatenate([np.flatnonzero(y == k)[:10] for k in classes])
    other = np.concatenate([np.flatnonzero(y == k)[10:] for k in classes])
    logits = head(x[own], y[own] - classes.start, hidden, 60, decay, seed)
    for view, (fresh, truth) in parts.items():
        here = np.isin(truth, classes)
        fresh, truth = fresh[here], truth[here]
        if view == "clean":
            fresh, truth = np.concatenate([fresh, x[other]]), np.concatenate([truth, y[other]])
        yield view, logits(fresh), truth - classes.start


def networks(data: Path, weights: Path, work: Path) -> dict[str, Callable[[], Iterator[tuple[str, np.ndarray, np.ndarray]]]]:  # fmt: skip  # noqa: E501
    first, second = slice(0, 3000), slice(3000, 6000)
    lite = (data, weights, work)
    return {
        "dev-lite": lambda: of_cifar(
            data, lambda x, y: finetuned(weights, x, y, 5, 2e-3, 0.01, 1), slice(0, 4000), first,
            "clean compressed dark",
        ),
        "dev-residual": lambda: of_cifar(
            data, lambda x, y: residual(x, y, 16, 10, 3), slice(16000, 24000), first, "clean compressed blurred"
        ),
        "confirm-lite": lambda: of_cifar(
            data, lambda x, y: finetuned(weights, x, y, 6, 1e-3, 0.1, 2), slice(4000, 7000), second,
            "clean compressed noisy",
        ),
        "confirm-residual": lambda: of_cifar(
            data, lambda x, y: residual(x, y, 24, 10, 4), slice(32000, 37000), second, "clean compressed dark",
        ),
        "dev-cifar-head": lambda: of_features(
            *lite, "cifar", lambda x, y: head(x, y, 256, 10, 0.01, 5), "clean blurred"
        ),
        "confirm-cifar-head": lambda: of_features(
            *lite, "cifar", lambda x, y: head(x, y, 0, 30, 0.1, 6), "clean compressed", 2000
        ),
        "dev-cub": lambda: of_features(*lite, "cub", lambda x, y: head(x, y, 0, 20, 0.1, 7), "clean compressed"),
        "confirm-cub": lambda: of_features(*lite, "cub", lambda x, y: head(x, y, 256, 15, 0.01, 8), "clean blurred"),
        "confirm-plantdoc": lambda: of_features(
            *lite, "plantdoc", lambda x, y: head(x, y, 128, 20, 0.01, 9), "clean", 500
        ),
        "dev-plantdoc": lambda: of_features(*lite, "plantdoc", lambda x, y: head(x, y, 0, 20, 0.1, 10), "clean", 400),
        "dev-birds": lambda: of_birds(*lite, range(20), 0, 0.01, 13),
        "confirm-birds": lambda: of_birds(*lite, range(20, 40), 128, 0.01, 14),
        "dev-digit-pictures": lambda: of_digit_pictures(16, 300, 40, 15, "clean compressed noisy"),
        "confirm-digit-pictures": lambda: of_digit_pictures(8, 500, 60, 16, "clean blurred dark"),
        "dev-few-digit-pictures": lambda: of_digit_pictures(24, 100, 60, 17, "clean blurred"),
        "confirm-few-digit-pictures": lambda: of_digit_pictures(16, 150, 60, 18, "clean compressed"),
        "dev-digits": lambda: of_digits(64, 300, 0.01, 11),
        "confirm-digits": lambda: of_digits(128, 150, 0.1, 12),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", help="names of networks, separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    options.work.mkdir(parents=True, exist_ok=True)
    for name, make in networks(options.data, options.weights, options.work).items():
        if (options.only and name not in options.only.split(",")) or list(options.work.glob(f"{name}-*.npz")):
            continue
        for view, z, y in make():
            np.savez(options.work / f"{name}-{view}.npz", logits=z.astype(np.float32), labels=y)
            print(f"{name}-{view}: {z.shape}, right {np.mean(z.argmax(axis=1) == y):.3f}", flush=True)


if __name__ == "__main__":
    main()
