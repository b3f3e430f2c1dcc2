"""Fine-tuning, which replaces the head only where it wins by more than one standard error of the paired difference."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.commands.fit.data import Rows
from calibrant.commands.fit.heads import CHOSEN, Pace
from calibrant.commands.fit.plan import BATCH, LEAST_JUDGES, STEP_OVER_FORWARD, Clock, Wanted, affordable, epochs_for
from calibrant.commands.fit.project import Project
from calibrant.progress import spoken

if TYPE_CHECKING:
    from calibrant.train.data.split import Splits
    from calibrant.train.model.choice import ChosenBackbone

TUNED, FROZEN = "fine-tuned", "frozen-head"
_RUN = ("config.json", "model.safetensors", "metrics.jsonl", "head.json", "predictions", "tb", "calibrator.json")


def planned(
    wanted: Wanted, project: Project, choice: ChosenBackbone, rows: Rows, pace: Pace, clock: Clock
) -> dict[str, Any]:
    """Epochs, and why so many; decided once, so that a later sitting goes on with the same schedule."""
    known = project.done("plan")
    if known is not None:
        return known
    judge = _judge(rows)
    images, judges = int((~judge).sum()), int((judge & rows.judged).sum())
    step = pace.seconds * STEP_OVER_FORWARD
    preset = wanted.preset if choice.pretrained or wanted.preset != "fast" else "balanced"  # from scratch it must train
    full = epochs_for(preset, images) if choice.pretrained else 30
    epochs = affordable(preset, images, step, clock.left()) if choice.pretrained else full
    if not choice.pretrained:
        epochs = max(1, min(full, int((0.85 * clock.left() - 20) / max(1e-9, images * step))))
    if preset == "fast":
        why = "the preset fast leaves the backbone as it is"
    elif judges < LEAST_JUDGES:
        epochs = 0
        why = f"left out: {judges} image{'s' * (judges != 1)} could not tell whether it wins"
    elif epochs == 0:
        need = spoken(full * images * step)
        why = f"left out: it would take about {need}, and {spoken(max(0.0, clock.left()))} are left of the time"
    else:
        why = f"{epochs} epochs on {images:,} images, about {spoken(epochs * images * step)}"
        why += "" if epochs == full else f" ({full} without the limit of time)"
    return project.finish("plan", {"epochs": epochs, "images": images, "why": why})


def tune(
    wanted: Wanted, project: Project, choice: ChosenBackbone, rows: Rows, pace: Pace, epochs: int
) -> dict[str, Any]:
    """Train on four fifths, judge on the fifth whose rows the head was judged on too."""
    known = project.done("tuning")
    if known is not None:
        return known
    from calibrant.artifacts.predictions import read_predictions
    from calibrant.train.engine import fit
    from calibrant.train.heads.cross_validation import difference, tempered_nll
    from calibrant.train.run.folder import CHECKPOINT_FILE

    run = project.path / TUNED
    file = run / "predictions" / "val.parquet"  # the last that training writes, there being no test images
    if not file.is_file():
        resume = (run / CHECKPOINT_FILE).is_file()
        fit(_config(wanted, choice, run, pace.size, epochs), splits=_splits(rows), resume=resume, overwrite=not resume)
    tuned = read_predictions(file)
    place = {id: i for i, id in enumerate(rows.learn.ids)}
    at = np.asarray([place[id] for id in tuned.ids], np.intp)
    folds = np.arange(len(at)) % 2 if len(set(rows.folds[at].tolist())) < 2 else rows.folds[at]
    nll = tempered_nll(tuned.logits, tuned.labels, folds)
    judged, head = np.load(project.path / CHOSEN)
    of_head = dict(zip(judged.astype(int).tolist(), head.tolist(), strict=True))
    both = np.asarray([int(i) in of_head for i in at], bool)
    gain, error = difference(np.asarray([of_head[int(i)] for i in at[both]]), nll[both])
    found = {
        "rows": int(both.sum()), "nll": float(nll[both].mean()), "head_nll": float(nll[both].mean() + gain),
        "gain": gain, "standard_error": error, "wins": bool(gain > error),
        "accuracy": float((tuned.logits.argmax(1) == tuned.labels)[both].mean()),
    }  # fmt: skip
    return project.finish("tuning", found)


def put_in_place(project: Project) -> None:
    """The fine-tuned run becomes the project's, the head gets a folder of its own. Goes on wherever it was stopped."""
    from calibrant.train.run.folder import CHECKPOINT_FILE

    head, tuned = project.path / FROZEN, project.path / TUNED
    if (tuned / "model.safetensors").is_file():
        if (project.path / "head.json").is_file() or not (project.path / "config.json").is_file():
            _move(project.path, head)
        (tuned / CHECKPOINT_FILE).unlink(missing_ok=True)
        _move(tuned, project.path)
    shutil.rmtree(tuned, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    order = sorted((source / name for name in _RUN), key=lambda p: p.name == "model.safetensors")  # it tells: all moved
    for item in order:
        if not item.exists():
            continue
        there = target / item.name
        if there.is_dir():
            shutil.rmtree(there)
        item.replace(there)


def _judge(rows: Rows) -> Any:
    """Rows that fine-tuning does not train on: of one fold, or of two where there are many."""
    return (rows.folds == 0) if rows.parts < 6 else (rows.folds >= 0) & (rows.folds < 2)


def _splits(rows: Rows) -> Splits:
    from calibrant.train.data.split import Splits

    judge = _judge(rows)
    return Splits(
        rows.class_names,
        rows.learn.rows(np.flatnonzero(~judge)),
        rows.learn.rows(np.flatnonzero(judge & rows.judged)),
    )


def _config(wanted: Wanted, choice: ChosenBackbone, run: Path, size: int, epochs: int) -> Any:
    from calibrant.train.config import train_config

    return train_config(
        {
            "out": str(run),
            "seed": wanted.seed,
            "model": {"name": choice.model, "image_size": size, "pretrained": choice.pretrained and not choice.weights}
            | ({} if choice.weights is None else {"weights": str(choice.weights)}),
            "schedule": {"epochs": epochs},
            "engine": {
                "batch_size": BATCH,
                "device": wanted.device,
                "frozen_head": "off",
                "keep": "last",
                "tensorboard": False,
            },
        },
        where="calibrant fit",
    )
