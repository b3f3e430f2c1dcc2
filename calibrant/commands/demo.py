"""`calibrant demo`: from images that it draws itself to a served, calibrated prediction.

A composition root: each step is one call to the public function of a stage, so this file is also the shortest
description of the whole path.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calibrant.atomic import write_json, write_text
from calibrant.calibration.verdict.text import verdict_lines
from calibrant.commands.demo_page import Row, facts, page, served_lines, sheet
from calibrant.errors import CheckFailed, ConfigError
from calibrant.progress import table
from calibrant.train.known_words import LOSS, MODEL

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

    from calibrant.artifacts.predictions import Predictions
    from calibrant.calibration import Calibrator
    from calibrant.calibration.report.figures import Model
    from calibrant.calibration.verdict.verdict import Verdict

_MARK = "demo.json"
_STEPS = 10
_NAME = "demo"  # of the served model
_SIDES = {"leaves": 64, "digits": 32}  # pixels


@dataclass(frozen=True)
class Demo:
    """What the command line asked for."""

    out: Path
    data: str
    classes: int
    intra: float
    inter: float
    imbalance: float
    images: int
    model: str
    loss: str
    epochs: int
    adjust: float
    seed: int
    brief: bool


@click.command()
@click.option(
    "--out", default="calibrant-demo", show_default=True, type=click.Path(path_type=Path), help="Folder for everything."
)
@click.option(
    "--data",
    type=click.Choice(["leaves", "digits"]),
    default="leaves",
    show_default=True,
    help="Drawn leaves, or scikit-learn's digits in colour.",
)
@click.option("--classes", default=10, show_default=True, type=click.IntRange(2, 100), help="Leaf species.")
@click.option(
    "--intra",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Variation inside a species, and of the photographs.",
)
@click.option("--inter", default=1.2, show_default=True, type=click.FloatRange(0), help="Distance between species.")
@click.option(
    "--imbalance",
    default=10.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Images of the commonest class over those of the rarest.",
)
@click.option(
    "--images", default=300, show_default=True, type=click.IntRange(8), help="Training images of the commonest species."
)
@click.option(
    "--model", type=MODEL, default="test_resnet", show_default=True, help="Any timm classifier; trained from scratch."
)
@click.option("--loss", type=LOSS, default="vace", show_default=True, help="Training loss.")
@click.option(
    "--epochs", default=40, show_default=True, type=click.IntRange(1), help="Passes over the training images."
)
@click.option(
    "--adjust",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 5),
    help="Strength of the correction for the skewed training set; 0 is off.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Same seed, same images and result.")
@click.option("--brief", is_flag=True, help="Leave out what is only there to fill the dashboard: steps 8 and 9.")
@click.option("--only-images", is_flag=True, help="Make the images and stop: a folder to try other commands on.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(as_json: bool, only_images: bool, **options: Any) -> None:
    """Run the whole path on data that needs no download: train, calibrate, export, serve, report.

    Takes about four minutes on two cores, half of it with --brief. The training set is long-tailed (many images of some
    classes, few of others), the test set is balanced, and the deployed file corrects for the difference. Then, for the
    dashboard: another loss, three heads on the frozen network, and served pictures that blur while labels come late.

    \b
    Examples:
      calibrant demo
      calibrant demo --data digits --epochs 15
      calibrant demo --classes 20 --intra 1.5 --imbalance 50 --out hard-leaves
      calibrant demo --only-images --out leaves
    """
    asked = Demo(**options)
    start = time.monotonic()
    _prepare(asked.out)
    if only_images:
        (asked.out / _MARK).unlink()
        folder = _images(asked, asked.out)
        said = f"\nImages: {folder}\nNext: calibrant fit {folder}"
        click.echo(json.dumps({"images": str(folder)}) if as_json else said)
        return
    result = _run(asked, quiet=as_json)
    result["seconds"] = round(time.monotonic() - start, 1)
    write_json(asked.out / _MARK, result)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    click.echo(
        f"\nDone in {result['seconds']:.0f} s. All files are in {asked.out}/: model.onnx, predictions/, run/ ..."
    )
    click.echo(f"Open next: {asked.out / 'report.html'}  (or: calibrant dashboard {asked.out})")


def _prepare(out: Path) -> None:
    """A folder of an earlier demo is made anew; anything else that holds files is left alone."""
    if out.exists() and not out.is_dir():
        raise ConfigError("is a file", where=out, fix="name a folder with --out")
    if out.is_dir() and any(out.iterdir()):
        if not (out / _MARK).is_file():
            raise ConfigError(
                "is not empty and was not made by calibrant demo", where=out, fix="name another with --out"
            )
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / _MARK, {"finished": False})


def _run(asked: Demo, *, quiet: bool) -> dict[str, Any]:
    def say(step: int, text: str) -> None:
        if not quiet:
            click.echo(f"[{step}/{_STEPS}] {text}")

    from calibrant.train.jobs.run import processes

    say(1, f"Making images: {asked.data}")
    images = _images(asked, asked.out / "images")
    if asked.brief:
        return _walk(asked, images, None, say, quiet=quiet)
    # What the dashboard compares with is trained at the same time, on another core.
    with processes(1, asked.out) as pool:
        other = "ce" if asked.loss != "ce" else "vace"
        return _walk(asked, images, pool.submit(_train_silently, asked, images, other), say, quiet=quiet)


def _walk(
    asked: Demo, images: Path, other: Future[Path] | None, say: Callable[[int, str], None], *, quiet: bool
) -> dict[str, Any]:
    from calibrant.commands.demo_traffic import ask_for_all

    out = asked.out
    say(2, f"Training {asked.model} with loss {asked.loss} for {asked.epochs} epochs")
    run = _train(asked, images, asked.loss, out / "run")

    say(3, "Predicting the validation and the test images")
    validation, test = (_predictions(run, images, out / "predictions" / f"{s}.parquet", s) for s in ("val", "test"))

    say(4, "Fitting a temperature on the validation images")
    calibrator = _calibrate(out / "predictions" / "val.parquet", out / "calibrator.json", asked.adjust)

    say(5, "Measuring before and after on the balanced test images")
    stages = _stages(test, calibrator, asked.adjust)

    say(6, "Exporting model.onnx with temperature and adjustment inside, and comparing it with torch")
    card = _export(run, out, asked.adjust)

    say(7, "Serving model.onnx and sending it every test image over HTTP")
    served, example = ask_for_all(out / "model.onnx", _NAME, images, test)
    stages.append(_measured("as served over HTTP", served, test))
    gap = _check_served(served, test, calibrator, asked.adjust)

    traffic = None if other is None else _fill(asked, run, other, images, test, len(validation), say)

    say(10, "Drawing reliability.png and report.html")
    rows = [Row.of(stage.name, stage.evaluation) for stage in stages]
    figure = _picture([stages[0], stages[-1]], out)
    write_text(
        out / "report.html",
        page(
            rows,
            figure=figure,
            sheet=sheet(images),
            example=example,
            facts=facts(asked, test, calibrator, card, gap),
        ),
    )
    found = _verdict(out)
    if not quiet:
        click.echo("\n" + verdict_lines(found, "model.onnx on the test images"))
        if traffic is not None:
            click.echo(served_lines(traffic))
        click.echo("\n" + table(Row.HEADERS, [row.cells() for row in rows]))
        click.echo(
            f"\n{len(test)} balanced test images. Null is the ECE that a perfectly calibrated model would show on as\n"
            "many by chance; the interval is that of the true ECE, with chance taken off. The server's answers\n"
            f"differ from the formula by {gap:.0e} at most."
        )
    return {
        "finished": True,
        "temperature": calibrator.parameters["temperature"],
        "served_difference": gap,
        "verdict": found.to_dict(),
        "monitor": None if traffic is None else traffic.report,
        "evaluations": {stage.name: stage.evaluation.to_dict()["metrics"] for stage in stages},
    }


def _images(asked: Demo, folder: Path) -> Path:
    if asked.data == "digits":
        from calibrant.train.data.digits import DigitSpec, write_digits

        return write_digits(folder, DigitSpec(imbalance=asked.imbalance, seed=asked.seed))
    from calibrant.train.data.leaves import LeafSpec, write_leaves

    spec = LeafSpec(
        classes=asked.classes,
        train_images=asked.images,
        val_images=max(8, asked.images // 2),
        intra=asked.intra,
        inter=asked.inter,
        imbalance=asked.imbalance,
        seed=asked.seed,
    )
    return write_leaves(folder, spec)


def _fill(
    asked: Demo,
    run: Path,
    other: Future[Path],
    images: Path,
    test: Predictions,
    known: int,
    say: Callable[[int, str], None],
) -> Any:
    """What the dashboard compares and watches: another loss, heads, and served traffic, which is returned."""
    from calibrant.commands.demo_heads import train_heads
    from calibrant.commands.demo_traffic import send

    out = asked.out
    say(8, "Training another loss as well (begun beside step 2), and three heads on the frozen network, to compare")
    second = other.result()
    _calibrate(second / "predictions" / "val.parquet", second / "calibrator.json", asked.adjust)
    train_heads(run, asked.model, images, out / "heads", image_size=_SIDES[asked.data])

    say(9, "Serving pictures that become blurred, with labels that come late")
    baseline = out / "predictions" / "val.parquet"
    return send(out / "model.onnx", _NAME, images, test, baseline, known, out / "served")


def _train(asked: Demo, images: Path, loss: str, out: Path) -> Path:
    import torch

    from calibrant.train import fit
    from calibrant.train.config import train_config

    # One thread: as fast as two for a network of this size, far faster on a busy machine, and the result is then the
    # same however many cores there are.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    size = _SIDES[asked.data]
    # Leaves lie any way round, digits do not.
    augment = {"crop": "pad", "pad": 0.1, "flip": "both" if asked.data == "leaves" else "none"}
    config = train_config({
        "out": str(out), "seed": asked.seed, "data": {"path": str(images)}, "augment": augment,
        "model": {"name": asked.model, "pretrained": False, "image_size": size, "crop_pct": 1.0},
        "loss": {"name": loss},
        "optimizer": {"lr": 4e-3}, "schedule": {"epochs": asked.epochs, "warmup_epochs": min(3, asked.epochs / 4)},
        "engine": {"batch_size": 64},
    }, where="calibrant demo")  # fmt: skip
    try:
        return fit(config)
    finally:
        torch.set_num_threads(threads)


def _train_silently(asked: Demo, images: Path, loss: str) -> Path:
    """In a process of its own; what it would say is in the run's own files."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return _train(asked, images, loss, asked.out / f"run-{loss}")


def _predictions(run: Path, images: Path, path: Path, split: str) -> Predictions:
    from calibrant.artifacts.predictions import read_predictions
    from calibrant.train.predict import predict_run

    return read_predictions(predict_run(run, images, path, split=split))


def _calibrate(validation: Path, path: Path, adjust: float) -> Calibrator:
    """A temperature for rows like those of training, and after it the correction of the class prior."""
    from calibrant.calibration.fitting import judged_fit

    fitted = judged_fit(validation, adjust=adjust or None, rows_follow="train" if adjust else "target")
    fitted.calibrator.save(path)
    return fitted.calibrator


def _verdict(out: Path) -> Verdict:
    """Of what model.onnx answers, on the test images."""
    from calibrant.calibration.evaluate_files import evaluate_files

    found = evaluate_files([out / "predictions" / "test.parquet"], [out / "calibrator.json"])[-1].verdict
    assert found is not None  # every evaluated model has one
    return found


def _stages(test: Predictions, calibrator: Calibrator, adjust: float) -> list[Model]:
    from calibrant.calibration.adjustment import adjusted_probabilities

    temperature = calibrator.parameters["temperature"]
    return [
        _measured("before: network alone", adjusted_probabilities(test.logits), test),
        _measured(f"after temperature {temperature:.2f}", calibrator.probabilities(test.logits), test),
        _measured(f"after adjustment {adjust:g}", _deployed(test, calibrator, adjust), test),
    ]


def _measured(name: str, probabilities: NDArray[np.float64], test: Predictions) -> Model:
    from calibrant.calibration import evaluate
    from calibrant.calibration.report.figures import Model
    from calibrant.calibration.statistics.accumulate import statistics_of_probabilities

    statistics = statistics_of_probabilities(probabilities, test.labels)
    return Model(name, evaluate(statistics, class_names=test.class_names), statistics)


def _deployed(test: Predictions, calibrator: Calibrator, adjust: float) -> NDArray[np.float64]:
    """What model.onnx has to answer, by the formula in numpy; `adjust` is the total, the loss's own share included."""
    from calibrant.calibration.adjustment import adjusted_probabilities
    from calibrant.shares import log_prior_ratio

    assert test.source.train_prior is not None  # every run records it
    return adjusted_probabilities(
        test.logits,
        calibrator=calibrator,
        log_prior_ratio=log_prior_ratio(test.source.train_prior),
        strength=adjust - test.source.absorbed,
    )


def _export(run: Path, out: Path, adjust: float) -> Any:
    from calibrant.export import ExportConfig, export_run

    return export_run(
        run, out / "model.onnx", ExportConfig(calibrator=out / "calibrator.json", adjust=adjust, name=_NAME)
    )


def _check_served(served: NDArray[np.float64], test: Predictions, calibrator: Calibrator, adjust: float) -> float:
    """Largest difference between the served probabilities and the formula, which must be rounding only."""
    import numpy as np

    gap = float(np.abs(served - _deployed(test, calibrator, adjust)).max())
    if not gap < 1e-4:
        raise CheckFailed(f"the server's probabilities differ from the formula by {gap:.1e}", where="calibrant demo")
    return gap


def _picture(stages: list[Model], out: Path) -> bytes:
    from calibrant.calibration.report.figures import reliability_figure, save

    save(reliability_figure(stages), out / "reliability.png")
    return (out / "reliability.png").read_bytes()
