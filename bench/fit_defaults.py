"""`calibrant fit` beside AutoGluon, fastai's `fine_tune` and a plain timm loop, on a test folder.

    python bench/fit_defaults.py --data plantdoc --weights tf_efficientnet_lite0.safetensors --json out.jsonl
    python bench/fit_defaults.py --tools fit,fastai --fastai-python venv/bin/python ...
    python bench/fit_defaults.py --tools autogluon --autogluon-python other/bin/python ...
    python bench/fit_defaults.py --table out.jsonl

DATA has train/CLASS and test/CLASS. Each run is a process of its own with one thread, and adds one line to the file;
what has its line is not run again. The tools take turns within a seed. `--table` prints mean and spread over seeds of
accuracy, NLL, ECE and CPU seconds. fastai and AutoGluon (pip install autogluon.multimodal) run where they are
installed, in environments of their own if need be.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = ("fit", "fit-fast", "head", "train", "fastai", "autogluon", "plain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS), help="some of: %(default)s")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--classes", type=int, help="only the first so many, by name")
    parser.add_argument("--model", default="tf_efficientnet_lite0")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4, help="of fastai and of the plain loop")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--fastai-python", default=sys.executable, help="of the environment that has fastai")
    parser.add_argument("--autogluon-python", default=sys.executable, help="of the environment that has AutoGluon")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.table:
        print(table([json.loads(line) for line in given.table.read_text().splitlines()]))
        return
    if given.child is not None:
        child(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        given.data = linked(given.data, Path(folder) / "data", given.classes)
        for seed in given.seeds.split(","):
            for tool in given.tools.split(","):
                one_run(given, tool, int(seed))


def one_run(given: argparse.Namespace, tool: str, seed: int) -> None:
    """One tool with one seed in a process of its own, unless the file has its line."""
    key = {"data": given.data.name, "size": given.image_size, "tool": tool, "seed": seed}
    known = given.json.read_text().splitlines() if given.json and given.json.is_file() else []
    if any(key.items() <= json.loads(line).items() for line in known):
        return
    python = {"fastai": given.fastai_python, "autogluon": given.autogluon_python}.get(tool, sys.executable)
    command = [python, __file__, "--child", str(seed), "--tools", tool, "--data", str(given.data)]
    command += ["--model", given.model, "--weights", str(given.weights)]
    command += ["--image-size", str(given.image_size), "--epochs", str(given.epochs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    line = json.dumps(key | json.loads(done.stdout.splitlines()[-1]))
    print(line, flush=True)
    if given.json:
        with open(given.json, "a") as stream:
            stream.write(line + "\n")


def linked(data: Path, out: Path, classes: int | None) -> Path:
    """The first classes of a data set, as links."""
    out = out.with_name(data.name if classes is None else f"{data.name}-{classes}")
    names = sorted(p.name for p in (data / "train").iterdir() if p.is_dir())[:classes]
    for split in ("train", "test"):
        (out / split).mkdir(parents=True)
        for name in names:
            (out / split / name).symlink_to((data / split / name).resolve(), target_is_directory=True)
    return out


def child(given: argparse.Namespace) -> None:
    work = Path(tempfile.mkdtemp())
    try:
        logits, labels, facts = globals()[f"run_{given.tools.replace('-', '_')}"](given, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps({"cpu": spent(), **facts} | measured(logits, labels)))


def spent() -> float:
    """CPU seconds of this process and of the commands that it ran."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(u.ru_utime + u.ru_stime for u in usage), 1)


def measured(log_p: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> dict[str, float]:
    """By hand, so that no tool is judged by its own code. log_p: (N, C)."""
    p = np.exp(log_p - log_p.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    hit, top = p.argmax(1) == labels, p.max(1)
    bins = np.minimum((top * 15).astype(int), 14)
    ece = sum(abs(hit[bins == b].sum() - top[bins == b].sum()) for b in range(15)) / len(labels)
    nll = -np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-12)).mean()
    return {"rows": len(labels), "accuracy": float(hit.mean()), "nll": float(nll), "ece": float(ece)}


def run_fit(given: argparse.Namespace, work: Path, preset: str = "balanced") -> tuple[Any, Any, dict[str, Any]]:
    """The exported file's own answers on the test folder."""
    out = work / "run"
    asked = ["--preset", preset, "--seed", given.child, "--time", "10h"]  # a busy machine must not shorten the schedule
    calibrant("fit", given.data, "--out", out, *asked, *_common(given))
    seconds = spent()  # what follows only reads the answers
    calibrant("predict", out / "model.onnx", "--data", given.data, "--split", "test", "--out", work / "test.parquet")
    found = json.loads((out / "fit.json").read_text())
    log_p, labels = through(work / "test.parquet", out / "calibrator.json")
    return log_p, labels, {"chosen": found["steps"]["report"]["chosen"], "cpu": seconds}


def run_fit_fast(given: argparse.Namespace, work: Path) -> tuple[Any, Any, dict[str, Any]]:
    return run_fit(given, work, "fast")


def run_head(given: argparse.Namespace, work: Path) -> tuple[Any, Any, dict[str, Any]]:
    """The frozen route by hand: features, a logistic head, a temperature."""
    calibrant("features", "--data", given.data, "--out", work / "f", *_common(given))
    settings = ["--kind", "logistic", "--set", "input.transform=standardise", "--set", "posthoc.temperature=global"]
    calibrant("head", work / "f", *settings, "--seed", given.child, "--out", work / "run")
    return *through(work / "run/predictions/test.parquet", work / "run/calibrator.json"), {}


def run_train(given: argparse.Namespace, work: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Fine-tuning by hand at its defaults, and a temperature."""
    calibrant("train", "--data", given.data, "--out", work / "run", "--seed", given.child, *_common(given))
    calibrant("calibrate", work / "run/predictions/val.parquet", "--out", work / "c.json")
    return *through(work / "run/predictions/test.parquet", work / "c.json"), {}


def _common(given: argparse.Namespace) -> list[str]:
    return ["--model", given.model, "--weights", str(given.weights), "--image-size", str(given.image_size)]


def calibrant(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "calibrant", *map(str, words)], check=True, stdout=sys.stderr)


def through(predictions: Path, calibrator: Path) -> tuple[Any, Any]:
    from calibrant.artifacts.predictions import read_predictions
    from calibrant.calibration import Calibrator
    from calibrant.calibration.formula import Formula, stored_prior

    rows = read_predictions(predictions)
    found = Calibrator.load(calibrator)
    prior = stored_prior(found, rows.source.train_prior, rows.source.absorbed)
    return Formula(found.classes, found, prior).logits(rows.logits), rows.labels


def run_fastai(given: argparse.Namespace, work: Path) -> tuple[Any, Any, dict[str, Any]]:
    """vision_learner(...).fine_tune(epochs) with the same backbone, size and a fifth for validation."""
    import torch
    from fastai.vision.all import (
        ImageDataLoaders,
        Resize,
        aug_transforms,
        get_image_files,
        set_seed,
        vision_learner,
    )

    torch.set_num_threads(1)
    set_seed(given.child, reproducible=True)
    hub = _hub_with(given, work)
    os.environ |= {"HF_HOME": str(hub), "HF_HUB_OFFLINE": "1"}
    from huggingface_hub import constants

    constants.HF_HUB_CACHE = str(hub / "hub")
    data = ImageDataLoaders.from_folder(
        given.data / "train", valid_pct=0.2, seed=given.child, item_tfms=Resize(given.image_size + 32), bs=32,
        batch_tfms=aug_transforms(size=given.image_size, min_scale=0.75), num_workers=0,
    )  # fmt: skip
    learner = vision_learner(data, given.model, pretrained=True)
    with learner.no_bar(), learner.no_logging():
        learner.fine_tune(given.epochs)
    files = sorted(get_image_files(given.data / "test"))
    with learner.no_bar():
        p, _ = learner.get_preds(dl=learner.dls.test_dl(files, num_workers=0))
    labels = np.asarray([data.vocab.o2i[f.parent.name] for f in files])
    return np.log(np.maximum(p.numpy(), 1e-12)), labels, {"epochs": given.epochs}


def run_autogluon(given: argparse.Namespace, work: Path) -> tuple[Any, Any, dict[str, Any]]:
    """MultiModalPredictor at its defaults (20 epochs at most, no limit of time), its backbone and image size named."""
    os.environ |= {"HF_HOME": str(work), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    import pandas as pd
    import torch

    torch.set_num_threads(1)
    stubs = _declared_operators(torch)
    _hub_with(given, work)
    from autogluon.multimodal import MultiModalPredictor

    train, test = (_listed(given.data / split) for split in ("train", "test"))
    predictor = MultiModalPredictor(label="label", problem_type="multiclass", path=str(work / "ag"), verbosity=1)
    predictor.fit(
        pd.DataFrame(train, columns=["image", "label"]),
        seed=given.child,
        hyperparameters={
            "model.names": ["timm_image"], "model.timm_image.checkpoint_name": given.model,
            "model.timm_image.image_size": given.image_size,
            "env.num_gpus": 0, "env.precision": 32, "env.num_workers": 0, "env.num_workers_inference": 0,
        },
    )  # fmt: skip
    p = predictor.predict_proba(pd.DataFrame(test, columns=["image", "label"]), as_pandas=True)
    labels = np.asarray([list(p.columns).index(name) for _, name in test])
    facts = {"epochs": predictor._learner._config.optim.max_epochs, "operators declared": stubs}
    return np.log(np.maximum(p.to_numpy(dtype=np.float64), 1e-12)), labels, facts


def _declared_operators(torch: Any) -> list[str]:
    """A CUDA torchvision beside a CPU torch, as one index gives them, cannot load its own; these two it must know.

    Detection alone calls them; declared, they let the import pass and would fail when called.
    """
    if "+cpu" not in torch.__version__ or "+cpu" in importlib.metadata.version("torchvision"):
        return []
    names = ["torchvision::nms", "torchvision::qnms"]
    for name in names:
        torch.library.define(name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return names


def _listed(split: Path) -> list[tuple[str, str]]:
    return [(str(f.resolve()), f.parent.name) for f in sorted(split.glob("*/*.jpg"))]


def _hub_with(given: argparse.Namespace, work: Path) -> Path:
    """A hub cache that holds the weights, as timm's downloads would."""
    import timm

    cfg = timm.models.get_pretrained_cfg(given.model)
    repo = work / "hub" / f"models--{cfg.hf_hub_id.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("local")
    (repo / "snapshots" / "local").mkdir(parents=True)
    (repo / "snapshots" / "local" / "model.safetensors").symlink_to(given.weights.resolve())
    return work


def run_plain(given: argparse.Namespace, work: Path) -> tuple[Any, Any, dict[str, Any]]:
    """What a first script does: timm's model, a new classifier, AdamW 1e-4, cosine; no calibration."""
    import timm
    import torch
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    torch.manual_seed(given.child)
    mean, std = (0.5,) * 3, (0.5,) * 3
    learn = [transforms.RandomResizedCrop(given.image_size, (0.35, 1)), transforms.RandomHorizontalFlip()]
    look = [transforms.Resize(given.image_size), transforms.CenterCrop(given.image_size)]
    end = [transforms.ToTensor(), transforms.Normalize(mean, std)]
    train = datasets.ImageFolder(given.data / "train", transforms.Compose([*learn, *end]))
    test = datasets.ImageFolder(given.data / "test", transforms.Compose([*look, *end]))
    network = timm.create_model(
        given.model,
        pretrained=True,
        pretrained_cfg_overlay={"file": str(given.weights)},
        num_classes=len(train.classes),
    )
    loader = torch.utils.data.DataLoader(train, 32, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-4, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.epochs * len(loader))
    for _ in range(given.epochs):
        network.train()
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.inference_mode():
        z = torch.cat([network(x) for x, _ in torch.utils.data.DataLoader(test, 64)]).numpy()
    return z, np.asarray(test.targets), {"epochs": given.epochs}


def table(lines: list[dict[str, Any]]) -> str:
    out = ["| data | tool | seeds | accuracy | NLL | ECE | CPU s |", "|---|---|---|---|---|---|---|"]
    for data, tool in dict.fromkeys((line["data"], line["tool"]) for line in lines):
        own = [line for line in lines if (line["data"], line["tool"]) == (data, tool)]

        def cell(key: str, own: list[dict[str, Any]] = own) -> str:
            values = [line[key] for line in own]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 and key != "cpu" else ""
            return (f"{statistics.mean(values):.0f}" if key == "cpu" else f"{statistics.mean(values):.3f}") + spread

        out.append(
            f"| {data} | {tool} | {len(own)} | " + " | ".join(map(cell, ("accuracy", "nll", "ece", "cpu"))) + " |"
        )
    return "\n".join(out)


if __name__ == "__main__":
    main()
