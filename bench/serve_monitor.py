"""What the monitor of the server is worth on real logits: coverage of the label-free accuracy, speed and false alarms.

    python bench/serve_monitor.py --logits DIR [--tune NET ...] [--birds CUB100_DIR --weights SAFETENSORS] [--json PATH]

--logits   CIFAR-10 logits of two networks. The alarm's settings were chosen on them, so their figures flatter it.
--tune     Chooses the settings anew on one network's logits, and reports the other network's: what a choice is worth
           on logits that had no part in it.
--birds    EfficientNet-Lite0 with a logistic head on 100 kinds of birds, clean and as blurred JPEG copies: another
           network, other data, another shift and ten times the classes, after the settings were fixed.

`own`: the server's setting, a baseline from the first 500 labels, or 25 a class; before the shift come 1,500 clean
ones, drawn with replacement, since there are too few clean rows. `given`: the rows that the temperature was fitted on
are given, a fixed baseline where they are enough for one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration import fit
from calibrant.calibration.monitoring.alarms import CONFIDENCE_BINS, WINDOW, Watch
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationAlarm, CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftAlarm, DriftSettings
from calibrant.calibration.monitoring.expected_accuracy import expected_accuracy
from calibrant.calibration.softmax import log_softmax

NETS = ("resnet20", "resnet56")
MODES = ("own", "given")
Array = NDArray[np.float64]
Labels = NDArray[np.int64]
GRID = {
    "prior_rows": (20.0, 60.0, 180.0), "memories": ((150, 500), (300,)),
    "sharpness": ((0.35, 0.5, 0.7, 1.4, 2.0), (0.5, 0.7, 1.4)),
}  # fmt: skip


def alarm_of(given: tuple[Array, Labels] | None, settings: Mapping[str, Any]) -> CalibrationAlarm:
    """As a server sets it up."""
    known = None if given is None else KnownRows.of(*given)
    watch = Watch.given(0.0, CalibrationSettings(**settings), DriftSettings(), known, WINDOW)
    return CalibrationAlarm(watch.calibration, watch.baseline, watch.beginning)


def gap_of(log_p: Array, y: Labels) -> tuple[float, float]:
    """Accuracy - confidence on held-out rows, and the variance of that estimate."""
    d = (log_p.argmax(axis=1) == y) - np.exp(log_p.max(axis=1))
    return float(d.mean()), float(d.var() / len(d))


def temperature(z: Array, y: Labels) -> float:
    return float(fit("temperature", z, y).parameters["temperature"])


def in_distribution(
    z: Array, y: Labels, rng: np.random.Generator, settings: Mapping[str, Any], *, halves: int = 100,
    modes: tuple[str, ...] = MODES,
) -> dict[str, Any]:  # fmt: skip
    """10 windows of 500 rows and 10 streams of the other half's length from each of many random halves.

    Temperature, gap and baseline are fitted on the other half each time: one fixed split would have one error of the
    fit in all of its windows.
    """
    windows, false = [], dict.fromkeys(modes, 0)
    for _ in range(halves):
        order = rng.permutation(len(y))
        cal, test = order[: len(y) // 2], order[len(y) // 2 :]
        log_p = log_softmax(z / temperature(z[cal], y[cal]))
        windows.append(coverage(log_p[test], y[test], gap_of(log_p[cal], y[cal]), rng, windows=10))
        for _ in range(10):
            stream = rng.permutation(test)
            for mode in modes:
                alarm = alarm_of((log_p[cal], y[cal]) if mode == "given" else None, settings)
                false[mode] += alarm.add(log_p[stream], y[stream])
    return {
        "label_free": {key: float(np.mean([w[key] for w in windows])) for key in windows[0]},
        "calm_streams": 10 * halves, "labels_a_stream": len(y) - len(y) // 2,
        "false_alarms": false,
    }  # fmt: skip


def after_the_shift(
    clean: tuple[Array, Labels],
    shifted: tuple[Array, Labels],
    same: Labels,
    rng: np.random.Generator,
    settings: Mapping[str, Any],
    *,
    streams: int = 200,
    modes: tuple[str, ...] = MODES,
) -> dict[str, Any]:
    """Calibrated on half of the clean rows; the stream runs through the other half and then turns to shifted rows.

    `same`: the shifted row of each clean row; what the fit has seen clean does not come back shifted.
    """
    (zc, yc), (z, y) = clean, shifted
    delays: dict[str, list[float]] = {mode: [] for mode in modes}
    early = dict.fromkeys(modes, 0)
    expected, errors, covered = [], [], 0
    for _ in range(streams):
        order = rng.permutation(len(yc))
        fit_on, rest = order[: len(yc) // 2], order[len(yc) // 2 :]
        t = temperature(zc[fit_on], yc[fit_on])
        clean_p = log_softmax(zc / t)
        pool = np.setdiff1d(np.arange(len(y)), same[fit_on])
        after = rng.choice(pool, 3000, replace=len(pool) < 3000)
        log_p, labels = log_softmax(z[after] / t), y[after]
        for mode in modes:
            alarm = alarm_of((clean_p[fit_on], yc[fit_on]) if mode == "given" else None, settings)
            calm = rest if mode == "given" else rng.choice(rest, 1500)
            early[mode] += alarm.add(clean_p[calm], yc[calm])
            fired = (n + 25 for n in range(0, 3000, 25) if alarm.add(log_p[n : n + 25], labels[n : n + 25]))
            delays[mode].append(next(fired, 3000))
        gap = gap_of(clean_p[fit_on], yc[fit_on])
        said = expected_accuracy(np.exp(log_p[:500].max(axis=1)), gap=gap[0], gap_variance=gap[1])
        truth = float((log_p[:500].argmax(axis=1) == labels[:500]).mean())
        covered += bool(said.low <= truth <= said.high)
        expected.append(said.value)
        errors.append(said.value - truth)
    return {
        "delay_median": {k: float(np.median(v)) for k, v in delays.items()},
        "delay_p95": {k: float(np.percentile(v, 95)) for k, v in delays.items()},
        "alarms_before_the_shift": early, "shifted_streams": streams,
        "under_shift": {
            "clean_accuracy": float((zc.argmax(axis=1) == yc).mean()),
            "true_accuracy": float((z.argmax(axis=1) == y).mean()), "label_free_accuracy": float(np.mean(expected)),
            "too_high_by": float(np.mean(errors)), "interval_covers": covered / streams,
        },
    }  # fmt: skip


def coverage(
    log_p: Array, y: Labels, gap: tuple[float, float], rng: np.random.Generator, *, windows: int
) -> dict[str, Any]:
    """Share of windows of 500 rows whose accuracy lies inside the interval."""
    confidence, correct = np.exp(log_p.max(axis=1)), log_p.argmax(axis=1) == y
    inside, errors = 0, []
    for _ in range(windows):
        rows = rng.choice(len(y), 500, replace=False)
        got = expected_accuracy(confidence[rows], gap=gap[0], gap_variance=gap[1])
        truth = correct[rows].mean()
        inside += bool(got.low <= truth <= got.high)
        errors.append(abs(got.value - truth))
    return {"coverage": inside / windows, "mean_abs_error": float(np.mean(errors))}


def drift(calm: Array, clean: Array, turned: Array, rng: np.random.Generator, *, streams: int = 300) -> dict[str, Any]:
    """Of confidence and of predicted classes, without labels. calm: log probabilities of streams that stay as they are;
    clean ones that turn to others after 4,000 rows; and a mix that turns to four times as many of three classes."""

    def alarms() -> tuple[DriftAlarm, DriftAlarm]:
        return DriftAlarm(CONFIDENCE_BINS), DriftAlarm(calm.shape[1])

    def seen(log_p: Array) -> tuple[Labels, Labels]:
        bins = (np.exp(log_p.max(axis=1)) * CONFIDENCE_BINS).astype(int)
        return np.clip(bins, 0, CONFIDENCE_BINS - 1), log_p.argmax(axis=1)

    def delay(alarm: DriftAlarm, values: Labels) -> int:
        return next((n + 50 for n in range(0, len(values), 50) if alarm.add(values[n : n + 50])), len(values))

    (confidence, predicted), (before, _), (after, _) = seen(calm), seen(clean), seen(turned)
    false = {"confidence": 0, "prior": 0}
    delays: dict[str, list[int]] = {"confidence": [], "prior": []}
    for n in range(streams):
        one, other = alarms()
        order = rng.integers(0, len(calm), 20_000)
        false["confidence"] += one.add(confidence[order])
        false["prior"] += other.add(predicted[order])
        if n % 5:
            continue
        one, other = alarms()
        one.add(before[rng.integers(0, len(before), 4000)])
        delays["confidence"].append(delay(one, after[rng.permutation(len(after))]))
        other.add(predicted[rng.integers(0, len(calm), 4000)])
        weights = np.where(predicted < 3, 4.0, 1.0)
        delays["prior"].append(delay(other, predicted[rng.choice(len(calm), 10_000, p=weights / weights.sum())]))
    return {
        "calm_streams": streams, "rows_a_stream": 20_000, "false_alarms": false,
        "delay_median": {k: float(np.median(v)) for k, v in delays.items()},
        "delay_p95": {k: float(np.percentile(v, 95)) for k, v in delays.items()},
    }  # fmt: skip


class Cifar:
    """Logits on the JPEG copies of CIFAR-10's test images, and on 846 of the originals."""

    def __init__(self, folder: Path, net: str) -> None:
        jpeg, clean = np.load(folder / f"cifar10jpeg75_{net}_test.npz"), np.load(folder / f"cifar10clean846_{net}.npz")
        self.shifted = jpeg["logits"].astype(np.float64), jpeg["labels"]
        self.clean = clean["logits"].astype(np.float64), clean["labels"]
        self.same = clean["jpeg_row"]

    def report(
        self, settings: Mapping[str, Any], *, halves: int = 100, streams: int = 200, modes: tuple[str, ...] = MODES
    ) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        calm = in_distribution(*self.shifted, rng, settings, halves=halves, modes=modes)
        turned = after_the_shift(self.clean, self.shifted, self.same, rng, settings, streams=streams, modes=modes)
        return {**calm, **turned}

    def drift(self) -> dict[str, Any]:
        t = temperature(*self.shifted)
        worse, clean = log_softmax(self.shifted[0] / t), log_softmax(self.clean[0] / t)
        return drift(worse, clean, worse, np.random.default_rng(0))


def tuned(on: Cifar) -> dict[str, Any]:
    """Settings with the shortest delay among those without a false alarm in 150 streams."""
    best: tuple[float, dict[str, Any]] | None = None
    for values in itertools.product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))
        found = on.report(settings, halves=15, streams=40, modes=("own",))
        if found["false_alarms"]["own"] > 0:
            continue
        delay = found["delay_median"]["own"]
        if best is None or delay < best[0]:
            best = delay, settings
    if best is None:
        raise SystemExit("no settings of the grid keep false alarms down")
    return best[1]


def bird_logits(folder: Path, weights: Path) -> dict[str, Any]:
    """Logits of the test images, clean and as blurred JPEG copies, of a logistic head fitted on the training images."""
    import io

    import timm
    import torch
    from PIL import Image, ImageFilter

    network = timm.create_model(
        "tf_efficientnet_lite0", pretrained=True, pretrained_cfg_overlay={"file": str(weights)}, num_classes=0
    ).eval()
    classes = sorted(p.name for p in (folder / "test").iterdir())

    def features(split: str, worse: bool) -> tuple[Any, Any]:
        rows, labels, batch = [], [], []
        files = [(p, k) for k, name in enumerate(classes) for p in sorted((folder / split / name).glob("*.jpg"))]
        for n, (path, k) in enumerate(files):
            image = Image.open(path).convert("RGB")
            scale = 256 / min(image.size)
            image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
            left, top = (image.width - 224) // 2, (image.height - 224) // 2
            image = image.crop((left, top, left + 224, top + 224))
            if worse:
                buffer = io.BytesIO()
                image.filter(ImageFilter.GaussianBlur(1.5)).save(buffer, "jpeg", quality=15)
                image = Image.open(buffer)
            batch.append(np.asarray(image, np.float32).transpose(2, 0, 1) / 127.5 - 1)
            labels.append(k)
            if len(batch) == 32 or n == len(files) - 1:
                with torch.inference_mode():
                    rows.append(network(torch.from_numpy(np.stack(batch))))
                batch = []
        return torch.cat(rows), torch.tensor(labels)

    x, y = features("train", worse=False)
    mean, std = x.mean(0), x.std(0) + 1e-6
    head = torch.nn.Linear(x.shape[1], len(classes))
    torch.nn.init.zeros_(head.weight)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=100)

    def closure() -> Any:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(head((x - mean) / std), y) + 0.01 * head.weight.square().sum() / 2
        loss.backward()
        return loss

    optimiser.step(closure)
    found: dict[str, Any] = {}
    for name, worse in (("clean", False), ("shifted", True)):
        test, labels = features("test", worse)
        with torch.inference_mode():
            found[name] = head((test - mean) / std).double().numpy(), labels.numpy()
    return found


def birds(folder: Path, weights: Path, halves: int) -> dict[str, Any]:
    logits, rng = bird_logits(folder, weights), np.random.default_rng(0)
    rows = np.arange(len(logits["clean"][1]))
    return {
        **in_distribution(*logits["clean"], rng, {}, halves=halves),
        **after_the_shift(logits["clean"], logits["shifted"], rows, rng, {}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path)
    parser.add_argument("--tune", nargs="*", choices=NETS, default=[], help="networks to choose settings on")
    parser.add_argument("--nets", nargs="*", choices=NETS, default=NETS, help="networks to report as they are")
    parser.add_argument("--birds", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--halves", type=int, default=100, help="random halves, of 10 calm streams each")
    parser.add_argument("--streams", type=int, default=200, help="streams that turn")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    report: dict[str, Any] = {}

    def note(name: str, found: dict[str, Any]) -> None:
        report[name] = found
        print(name, json.dumps(found), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(report, indent=2))

    start = time.monotonic()
    if asked.birds:
        note("birds", birds(asked.birds, asked.weights, asked.halves))
    if asked.logits:
        nets = {name: Cifar(asked.logits, name) for name in NETS}
        for name in asked.nets:
            note(f"{name}, drift", nets[name].drift())
            note(name, nets[name].report({}, halves=asked.halves, streams=asked.streams))
        for on in asked.tune:
            other = next(name for name in NETS if name != on)
            settings = tuned(nets[on])
            note(f"{other}, tuned on {on}", {"settings": settings, **nets[other].report(settings)})
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
