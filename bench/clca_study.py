"""Does the cross-layer head and cache help when tokens are dropped? A small ViT from scratch on CIFAR-10 images.

    python bench/clca_study.py --images ../shared/data/cifar10_jpeg.npz --results study.jsonl
    python bench/clca_study.py --results study.jsonl --table --plot docs/images/clca-study.png
    python bench/clca_study.py --results study.jsonl --docs docs/evidence/token-reduction.md  # the table into the page

Every run sees the same images in the same order for the same number of steps; only the seed, the reduction and the
head differ. Each finished run is one line of the results file and is skipped when the command is given again; a run
that was stopped goes on from its last checkpoint (safetensors beside the results file). One thread.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from calibrant.train.vit import ReducedViT, reduce_tokens
from calibrant.train.vit.macs import count_macs

STEPS, BATCH, TEST = 600, 50, 2000
LOCATIONS = (2, 4, 6)
GRID = [("none", 1.0)] + [("evit", r) for r in (0.1, 0.25)] + [("patchmerger", 0.25), ("tome", 0.25)]


@dataclass(frozen=True)
class Run:
    """One training: what is compared, and the seed."""

    method: str
    keep_rate: float
    clca: bool
    seed: int

    @property
    def key(self) -> str:
        """Name in the results file."""
        return f"{self.method}/{self.keep_rate:g}/{'clca' if self.clca else 'base'}/{self.seed}"


def runs(seeds: int) -> list[Run]:
    """Seeds outermost, so that a study that was stopped is still balanced."""
    return [Run(m, r, c, s) for s in range(seeds) for m, r in GRID for c in (False, True)]


def load_images(path: Path) -> dict[str, Tensor]:
    """The first images of a fixed shuffle of CIFAR-10, normalised, (N, 3, 32, 32)."""
    from PIL import Image

    archive = np.load(path)
    header = archive["jpeg_header"].tobytes()
    out: dict[str, Tensor] = {}
    for split, wanted in (("train", STEPS * BATCH), ("test", TEST)):
        data, offsets = archive[f"{split}_bytes"].tobytes(), archive[f"{split}_offsets"]
        chosen = np.random.default_rng(0).permutation(len(offsets) - 1)[:wanted]
        decoded = [Image.open(io.BytesIO(header + data[offsets[i] : offsets[i + 1]])).convert("RGB") for i in chosen]
        x = torch.from_numpy(np.stack([np.asarray(image) for image in decoded])).permute(0, 3, 1, 2)
        out[split] = (x.float() / 255.0 - 0.47) / 0.25
        out[f"{split}_labels"] = torch.from_numpy(archive[f"y_{split}"][chosen].astype(np.int64))
    return out


def build(run: Run) -> ReducedViT:
    """ViT of 8 blocks, width 64, patch 4 (64 patches)."""
    torch.manual_seed(run.seed)
    vit = VisionTransformer(img_size=32, patch_size=4, embed_dim=64, depth=8, num_heads=2, num_classes=10, mlp_ratio=4)
    return reduce_tokens(
        vit, run.method, keep_rate=run.keep_rate, locations=LOCATIONS, cla=run.clca, cache_tokens=int(run.clca)
    )


def train(run: Run, data: dict[str, Tensor], folder: Path) -> dict[str, Any]:
    """One pass over the training images; resumes from `folder` where a checkpoint of this run lies."""
    model = build(run)
    exempt = model.no_weight_decay()
    plain = [p for n, p in model.named_parameters() if p.dim() < 2 or n in exempt]
    decayed = [p for n, p in model.named_parameters() if p.dim() >= 2 and n not in exempt]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    checkpoint = folder / (run.key.replace("/", "_") + ".safetensors")
    start, spent, largest = 0, 0.0, 0.0
    parameters = plain + decayed
    if checkpoint.exists():
        start, spent, largest = resume(checkpoint, model, optimizer, parameters)
    order = torch.randperm(len(data["train"]), generator=torch.Generator().manual_seed(run.seed))
    flips = torch.rand(len(order), generator=torch.Generator().manual_seed(run.seed + 1)) < 0.5
    clock, model = time.process_time(), model.train()
    for step in range(start, STEPS):
        rate = 1e-3 * min(1.0, (step + 1) / 60) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = order[step * BATCH : (step + 1) * BATCH]
        x, y = data["train"][rows], data["train_labels"][rows]
        x = torch.where(flips[rows][:, None, None, None], x.flip(-1), x)
        loss = nn.functional.cross_entropy(model(x), y)
        auxiliary = model.auxiliary_loss()
        optimizer.zero_grad()
        (loss if auxiliary is None else loss + auxiliary).backward()
        if step >= STEPS // 10:  # after the warm-up
            largest = max(largest, *(float(p.grad.abs().max()) for p in parameters if p.grad is not None))
        optimizer.step()
        if (step + 1) % 200 == 0 and step + 1 < STEPS:
            seconds = spent + time.process_time() - clock
            save(checkpoint, model, optimizer, parameters, (step + 1, seconds, largest))
    spent += time.process_time() - clock
    checkpoint.unlink(missing_ok=True)
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(x) for x in data["test"].split(250)])
    correct = (logits.argmax(1) == data["test_labels"]).float()
    return {
        **asdict(run),
        "key": run.key,
        "accuracy": float(correct.mean()),
        "nll": float(nn.functional.cross_entropy(logits, data["test_labels"])),
        "macs": count_macs(model).total,
        "largest_gradient": largest,
        "cpu_seconds": spent,
        "steps": STEPS,
        "batch": BATCH,
    }


def save(
    path: Path,
    model: ReducedViT,
    optimizer: torch.optim.AdamW,
    parameters: list[nn.Parameter],
    progress: tuple[int, float, float],
) -> None:
    """Weights, the two moments of AdamW, and (step, CPU seconds, largest gradient) so far."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    for i, p in enumerate(parameters):
        for name in ("exp_avg", "exp_avg_sq", "step"):
            tensors[f"adam.{i}.{name}"] = optimizer.state[p][name]
    temporary = path.with_suffix(".part")
    save_file(tensors, temporary, metadata={"progress": json.dumps(progress)})
    temporary.replace(path)


def resume(
    path: Path, model: ReducedViT, optimizer: torch.optim.AdamW, parameters: list[nn.Parameter]
) -> tuple[int, float, float]:
    """The step to go on from, the CPU seconds spent and the largest gradient so far."""
    from safetensors import safe_open

    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        step, spent, largest = json.loads(file.metadata()["progress"])
    model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
    for i, p in enumerate(parameters):
        optimizer.state[p] = {name: tensors[f"adam.{i}.{name}"] for name in ("exp_avg", "exp_avg_sq", "step")}
    return step, spent, largest


def read(path: Path) -> list[dict[str, Any]]:
    """Finished runs."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class Row:
    """Mean over seeds of one setting, base against CLCA."""

    method: str
    keep_rate: float
    macs: tuple[float, float]
    accuracy: tuple[float, float]
    deviation: tuple[float, float]
    gain: float
    gain_error: float
    gradient: tuple[float, float]
    seeds: int


def summarise(results: list[dict[str, Any]]) -> list[Row]:
    """One row per method and keep rate; the gain is paired by seed, with its standard error."""
    rows = []
    for method, rate in GRID:
        by: dict[bool, dict[int, dict[str, Any]]] = {False: {}, True: {}}
        for r in results:
            if (r["method"], r["keep_rate"]) == (method, rate):
                by[r["clca"]][r["seed"]] = r
        seeds = sorted(by[False].keys() & by[True].keys())
        if not seeds:
            continue
        spread = [float(np.std(p, ddof=1)) if len(seeds) > 1 else math.nan for p in _accuracies(by, seeds)]
        pair = _accuracies(by, seeds)
        gains = np.subtract(pair[1], pair[0])
        error = float(gains.std(ddof=1) / math.sqrt(len(seeds))) if len(seeds) > 1 else math.nan
        gradient = [np.nanmedian([by[c][s]["largest_gradient"] or math.nan for s in seeds]) for c in (False, True)]
        rows.append(
            Row(
                method,
                rate,
                (by[False][seeds[0]]["macs"] / 1e6, by[True][seeds[0]]["macs"] / 1e6),
                (float(np.mean(pair[0])), float(np.mean(pair[1]))),
                (spread[0], spread[1]),
                float(gains.mean()),
                error,
                (float(gradient[0]), float(gradient[1])),
                len(seeds),
            )
        )
    return rows


def _accuracies(by: dict[bool, dict[int, dict[str, Any]]], seeds: list[int]) -> list[list[float]]:
    return [[by[c][s]["accuracy"] * 100 for s in seeds] for c in (False, True)]


def table(rows: list[Row]) -> str:
    """Markdown; spreads and errors only where there are two seeds or more."""
    lines = [
        "| method | keep | seeds | MMACs base / CLCA | accuracy | with CLCA | gain (s.e.) | gradient base / CLCA |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        alone = r.seeds < 2
        cells = [f"{a:.1f}" if alone else f"{a:.1f} ± {d:.1f}" for a, d in zip(r.accuracy, r.deviation, strict=True)]
        gain = f"{r.gain:+.1f}" if alone else f"{r.gain:+.1f} ({r.gain_error:.1f})"
        peaks = " / ".join("?" if math.isnan(g) else f"{g:.2f}" for g in r.gradient)
        lines.append(
            f"| {r.method} | {r.keep_rate:g} | {r.seeds} | {r.macs[0]:.1f} / {r.macs[1]:.1f} "
            f"| {cells[0]} | {cells[1]} | {gain} | {peaks} |"
        )
    return "\n".join(lines)


def plot(rows: list[Row], path: Path) -> None:
    """Accuracy against MACs; an arrow leads from each setting without CLCA to the one with it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4.0))
    colours = {"none": "black", "evit": "tab:blue", "patchmerger": "tab:orange", "tome": "tab:green"}
    for r in rows:
        colour = colours.get(r.method, "tab:red")
        axis.errorbar(r.macs[0], r.accuracy[0], r.deviation[0], fmt="o", color=colour, mfc="white", capsize=2)
        axis.errorbar(r.macs[1], r.accuracy[1], r.deviation[1], fmt="o", color=colour, capsize=2)
        axis.annotate(
            "",
            (r.macs[1], r.accuracy[1]),
            (r.macs[0], r.accuracy[0]),
            arrowprops={"arrowstyle": "->", "color": colour, "lw": 0.8},
        )
        axis.annotate(
            f"{r.method} {r.keep_rate:g}",
            (r.macs[1], r.accuracy[1]),
            textcoords="offset points",
            xytext=(5, 4),
            fontsize=7,
            color=colour,
        )
    axis.set_xlabel("million multiply-accumulates per image")
    axis.set_ylabel("test accuracy in %")
    axis.set_title("hollow: base, filled: CLCA; bars: standard deviation over seeds", fontsize=8)
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train what is missing, or report what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="cifar10_jpeg.npz")
    parser.add_argument("--results", type=Path, required=True, nargs="+", help="JSON lines; new runs go to the first")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=35.0, help="CPU minutes after which no new run starts")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--docs", type=Path, help="page whose part between the study marks is replaced by the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.images is not None:
        data = load_images(options.images)
        done = {r["key"] for path in options.results for r in read(path)}
        for run in runs(options.seeds):
            if run.key in done or time.process_time() > options.budget * 60:
                continue
            result = train(run, data, options.results[0].parent)
            with options.results[0].open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(f"{run.key}: {100 * result['accuracy']:.1f} % in {result['cpu_seconds']:.0f} s", flush=True)
    rows = summarise([r for path in options.results for r in read(path)])
    if options.table:
        print(table(rows))
    if options.docs is not None:
        before, mark, rest = options.docs.read_text().partition("<!-- study -->\n")
        _, end, after = rest.partition("<!-- end of study -->")
        if not mark or not end:
            raise SystemExit(f"{options.docs} has no study marks")
        options.docs.write_text(f"{before}{mark}{table(rows)}\n{end}{after}")
    if options.plot is not None:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
