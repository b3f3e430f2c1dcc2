"""What a head costs: training against DataLoader loops, extraction against the bare network, a sweep on two cores.

    python bench/heads_speed.py [train] [extract] [sweep] [fused] [--json PATH]

Ratios are taken inside one run, variants interleaved, best of repeats. Training and extraction count CPU time of this
process and of its children, the sweep wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from calibrant.progress import table
from calibrant.train.heads.config import head_config
from calibrant.train.heads.training.trainer import train_head
from calibrant.train.losses import create_loss
from calibrant.train.seeds import derive

ROWS, WIDTH, CLASSES = 5000, 1280, 100


def cpu() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def toy(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % CLASSES
    return torch.randn(rows, WIDTH, generator=g) + torch.randn(CLASSES, WIDTH, generator=g)[y], y


def by_loader(x: Tensor, y: Tensor, epochs: int, workers: int) -> Tensor:
    """The same optimisation as train_head's defaults, batches from a DataLoader."""
    torch.manual_seed(derive(0, "init"))
    model = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=epochs * -(-len(x) // 128))
    loss, order = create_loss("ce", num_classes=CLASSES), torch.Generator().manual_seed(derive(0, "order"))
    data = TensorDataset(x, y)
    for _ in range(epochs):
        batches = BatchSampler(torch.randperm(len(x), generator=order).tolist(), 128, drop_last=False)
        for xb, yb in DataLoader(data, batch_sampler=batches, num_workers=workers):
            optimizer.zero_grad()
            loss(model(xb), yb).backward()
            optimizer.step()
            schedule.step()
    return model.weight.detach()


def bench_train(repeats: int) -> list[dict[str, Any]]:
    x, y = toy()
    found: dict[str, list[tuple[float, float]]] = {}
    weights: dict[str, Tensor] = {}

    def ours(epochs: int) -> Callable[[], Tensor]:
        config = head_config({}, [f"optimizer.epochs={epochs}"])
        return lambda: train_head(config, x, y, CLASSES).head.classifier.weight.detach()  # type: ignore[union-attr,return-value]

    short = 10
    runs: dict[str, Callable[[], Tensor]] = {
        "calibrant, 100 epochs": ours(100),
        f"calibrant, {short} epochs": ours(short),
        f"DataLoader, {short} epochs": lambda: by_loader(x, y, short, 0),
        f"DataLoader with 2 workers, {short} epochs": lambda: by_loader(x, y, short, 2),
    }
    for _ in range(repeats):
        for name, run in runs.items():
            start, wall = cpu(), time.perf_counter()
            weights[name] = run()
            found.setdefault(name, []).append((cpu() - start, time.perf_counter() - wall))
    equal = bool(torch.equal(weights[f"calibrant, {short} epochs"], weights[f"DataLoader, {short} epochs"]))
    base = min(v[0] for v in found[f"calibrant, {short} epochs"])
    base_wall = min(v[1] for v in found[f"calibrant, {short} epochs"])
    rows = [
        {
            "what": name, "cpu_s": min(v[0] for v in values), "wall_s": min(v[1] for v in values),
            "cpu_ratio": min(v[0] for v in values) / base, "wall_ratio": min(v[1] for v in values) / base_wall,
        }
        for name, values in found.items()
    ]  # fmt: skip
    rows.append({"what": "weights bitwise those of the DataLoader loop", "equal": equal})
    return rows


def bench_extract(images: Path, weights: Path | None, model: str, repeats: int, count: int) -> list[dict[str, Any]]:
    """Decoding, transform and forward against the forward alone, on the same images and thread."""
    from calibrant.train.heads.features.backbone import load_backbone
    from calibrant.train.heads.features.extract import forward_views, read_splits
    from calibrant.train.model.evaluation_transform import evaluation_transform

    backbone = load_backbone(model, weights=weights, pretrained=False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    preprocessing = evaluation_transform(backbone.model)
    _, splits = read_splits(images)
    part = splits["train"].rows(np.linspace(0, len(splits["train"]) - 1, count).astype(np.intp))
    x = torch.randn(32, 3, *preprocessing.size).to(memory_format=torch.channels_last)

    def forward() -> None:
        with torch.inference_mode():
            for _ in range(-(-count // 32)):
                backbone(x)

    runs: dict[str, Callable[[], Any]] = {
        "forward only": forward,
        "features, one view": lambda: forward_views(backbone, part, preprocessing, ["eval"], batch_size=32),
    }
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            run()
            found.setdefault(name, []).append(time.process_time() - start)
    passes = {"forward only": 32 * -(-count // 32), "features, one view": count}
    rate = {name: passes[name] / min(values) for name, values in found.items()}
    return [{"what": n, "images_per_cpu_s": r, "share_of_forward": r / rate["forward only"]} for n, r in rate.items()]


def bench_sweep() -> list[dict[str, Any]]:
    """20 variants with one process and with two."""
    from calibrant.train.heads.features.cache import FeatureCache, Manifest, write_manifest, write_shard
    from calibrant.train.heads.sweep.plan import read_sweep
    from calibrant.train.heads.sweep.run import run_sweep

    x, y = toy(3000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feats"
        names = tuple(map(str, range(CLASSES)))
        splits = {"train": len(x)}
        m = Manifest({"name": "toy", "options": {}, "sha256": "0", "weights": None}, {}, "head", WIDTH, 1, "float32",
                     "none", 0, len(x), names, splits, {"train": "x"})  # fmt: skip
        path.mkdir()
        write_manifest(path, m)
        write_shard(FeatureCache(path, m).shard("train", "eval", 0), names * 30, y.numpy(), x.numpy(), "float32")
        file = Path(folder) / "sweep.toml"
        lines = ["seeds = [0]", "[baseline]", "data.val_per_class = 5", "optimizer.epochs = 200"]
        for i in range(19):
            lines += ["[[variant]]", f'name = "{i}"', f"set.optimizer.lr = {1e-3 * (i + 1)}"]
        file.write_text("\n".join(lines))
        wall = {}
        for workers in (1, 2):
            start = time.perf_counter()
            run_sweep(read_sweep(file, features=path, out=Path(folder) / f"out{workers}"), workers=workers)
            wall[workers] = time.perf_counter() - start
    return [{"what": f"sweep of 20, {n} processes", "wall_s": s, "speedup": wall[1] / s} for n, s in wall.items()]


def bench_fused(images: Path, weights: Path | None, model: str, repeats: int) -> list[dict[str, Any]]:
    """onnxruntime, one thread, uint8 in: the backbone with timm's own 100-class linear head, against fused heads."""
    import onnxruntime as ort

    from calibrant.export import export_onnx
    from calibrant.train.heads.features.backbone import load_backbone
    from calibrant.train.heads.fused import fuse
    from calibrant.train.model.evaluation_transform import evaluation_transform
    from calibrant.train.model.feature_model import build_model

    backbone = load_backbone(model, weights=weights, pretrained=False)
    preprocessing = evaluation_transform(backbone.model)
    x, y = toy(500)
    lda = ["head.kind=lda", "head.between=0.15", "head.shrinkage=0.8", "input.power=0.5"]
    heads: dict[str, tuple[list[str], tuple[str, ...]]] = {
        "linear, standardised": (["input.transform=standardise"], ("eval",)),
        "cosine, standardised, power .5": (
            ["head.kind=cosine", "input.transform=standardise", "input.power=0.5"], ("eval",),
        ),
        "lda, power .5": (lda, ("eval",)),
        "lda, power .5, with the mirrored view": (lda, ("eval", "flip")),
    }  # fmt: skip
    names = [str(k) for k in range(CLASSES)]
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        plain = build_model(model, CLASSES, weights=weights).eval()
        file = Path(folder) / "m.onnx"
        export_onnx(plain, file, class_names=names, preprocessing=preprocessing)
        files["backbone with its own head"] = file.read_bytes()
        for name, (settings, views) in heads.items():
            config = head_config({}, ["optimizer.epochs=2", *settings])
            trained = train_head(config, x, y, CLASSES)
            network, _ = fuse(backbone, trained, config.head, views)
            export_onnx(network, file, class_names=names, preprocessing=preprocessing,
                        train_prior=[1 / CLASSES] * CLASSES)  # fmt: skip
            files[name] = file.read_bytes()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = {n: ort.InferenceSession(b, options, providers=["CPUExecutionProvider"]) for n, b in files.items()}
    rng = np.random.default_rng(0)
    rows = []
    for batch in (1, 8):
        pixels = rng.integers(0, 255, (batch, *preprocessing.size, 3), dtype=np.uint8)
        best = dict.fromkeys(sessions, float("inf"))
        for _ in range(repeats * 20):
            for name, session in sessions.items():
                start = time.thread_time()
                session.run(None, {session.get_inputs()[0].name: pixels})
                best[name] = min(best[name], time.thread_time() - start)
        base = best["backbone with its own head"]
        rows += [{"what": f"{n}, batch {batch}", "ms": 1e3 * t, "ratio": t / base} for n, t in best.items()]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["train", "sweep"])
    parser.add_argument("--images", type=Path, help="image folder, for extract")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--model", default="tf_efficientnet_lite0")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--count", type=int, default=128, help="images of extract")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    if "train" in a.parts:
        results["train"] = bench_train(a.repeats)
    if "extract" in a.parts:
        if a.images is None:
            parser.error("extract needs --images DIR")
        results["extract"] = bench_extract(a.images, a.weights, a.model, a.repeats, a.count)
    if "sweep" in a.parts:
        results["sweep"] = bench_sweep()
    if "fused" in a.parts:
        results["fused"] = bench_fused(a.images, a.weights, a.model, a.repeats)
    for name, rows in results.items():
        keys = list(dict.fromkeys(k for row in rows for k in row))
        cells = [
            [f"{row[k]:.3f}" if isinstance(row.get(k), float) else str(row.get(k, "")) for k in keys] for row in rows
        ]
        print(f"\n{name}\n{table(keys, cells)}")
    if a.json:
        a.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
