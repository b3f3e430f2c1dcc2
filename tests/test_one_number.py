"""One run, one number: whoever reads a run through its calibrator.json shows the same NLL and ECE.

Readers: the formula by hand, `evaluate --json`, its HTML report, the dashboard, the deployed file in onnxruntime and
in the server's own classifier. For a trained run with and without VACE's class temperatures, and for a head run, whose
own table of metrics is one more reader.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import Predictions, Source, read_predictions
from calibrant.calibration import Calibrator, metrics
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.formula import Formula
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.tables import headline, interval
from calibrant.commands.root import cli
from calibrant.errors import CalibrantError
from calibrant.images.preprocessing import Preprocessing

pytest.importorskip("torch")
NAMES = ("ash", "birch", "cedar", "elm")
PRIOR = np.array([0.55, 0.25, 0.15, 0.05])
PREPROCESSING = Preprocessing((32, 32), 32)
ROWS = 90
TAUS = [0.8, 1.0, 1.3, 0.9]
Probs = NDArray[np.float64]


def call(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def softmax_by_hand(z: Probs) -> Probs:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def printed(probs: Probs, labels: NDArray[np.int64]) -> tuple[str, str]:
    """NLL and ECE as the tables print them."""
    return f"{metrics.nll(probs, labels):.4f}", f"{100 * metrics.ece(probs, labels):.2f} %"


def as_printed(found: dict[str, dict[str, float | None]]) -> dict[str, str]:
    """Every metric with its interval, as the report writes them."""
    shown = {m: Measured(**found[m.key]) for m in METRICS if m.key in found}
    return {m.key: f"{headline(v, m)}</span><small>{interval(v, m.unit)}" for m, v in shown.items()}


def save_run(folder: Path, taus: list[float] | None) -> Path:
    """A run as training leaves it: an untrained network, its logits for two sets of pictures, labels drawn by them."""
    import torch

    from calibrant.atomic import write_json
    from calibrant.images.image_set import ImageSet
    from calibrant.train.config import ModelConfig, TrainConfig
    from calibrant.train.data.split import Splits
    from calibrant.train.losses import create_loss
    from calibrant.train.model.feature_model import build_model
    from calibrant.train.run.folder import load_run, save_model
    from calibrant.train.run.run_record import model_block

    torch.manual_seed(0)
    network = build_model("test_resnet", len(NAMES), input_size=(32, 32)).eval()
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (2, ROWS, 32, 32, 3)) * rng.random((2, ROWS, 1, 1, 3))
    pixels_of = dict(zip(("val", "test"), noise.astype(np.uint8), strict=True))
    with torch.no_grad():  # logits with a spread of 1.5 over the pictures, as if it had learned something
        z, _ = network(torch.from_numpy(PREPROCESSING.normalise(pixels_of["val"])))
        for layer in network.classifier_layers():
            layer.weight.mul_(1.5 / float(z.std(0).mean()))  # type: ignore[operator]
        z, _ = network(torch.from_numpy(PREPROCESSING.normalise(pixels_of["val"])))
        for layer in network.classifier_layers():
            layer.bias.sub_(z.mean(0))  # type: ignore[operator]
    nothing = ImageSet((), np.zeros(0, np.int64), files=())
    config = TrainConfig(model=ModelConfig(name="test_resnet"))
    counts = np.rint(100 * PRIOR).astype(np.int64)
    loss = create_loss("ce", num_classes=len(NAMES))
    block = model_block(config, Splits(NAMES, nothing, nothing), PREPROCESSING, counts, loss, {}, network)
    folder.mkdir(parents=True)
    save_model(folder / "model.safetensors", network, block | {"class_temperatures": taus})
    write_json(folder / "config.json", {"kind": "run", "format_version": 1, "config": {"data": {"path": None}}})
    trained = load_run(folder)
    (folder / "predictions").mkdir()
    for split in ("val", "test"):
        pixels = pixels_of[split]
        np.save(folder / f"{split}.npy", pixels)
        with torch.inference_mode():
            z, _ = trained.network(torch.from_numpy(PREPROCESSING.normalise(pixels)))
            logits = trained.adjust(z).numpy().astype(np.float32)
        truth = softmax_by_hand(0.6 * logits.astype(np.float64))
        labels = np.array([rng.choice(len(NAMES), p=p) for p in truth])
        Predictions(tuple(map(str, range(ROWS))), labels, logits, trained.source()).write(
            folder / "predictions" / f"{split}.parquet"
        )
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """A run with or without VACE's class temperatures, made when it is asked for first."""
    from calibrant.export import ExportConfig, export_run

    @cache
    def made(vace: bool) -> Path:
        folder = save_run(tmp_path_factory.mktemp("runs") / "trees", TAUS if vace else None)
        export_run(folder, folder.parent / "plain.onnx", ExportConfig())
        return folder

    return made


@pytest.fixture
def run(request: pytest.FixtureRequest, runs: Callable[[bool], Path]) -> Path:
    return runs(getattr(request, "param", True))


CASES = {
    "temperature": (),
    "vector": (),
    "structured": (),
    "isotonic": (),
    "temperature, inside": ("--adjust", "1"),
    "vector, inside": ("--adjust", "1"),
    "structured, inside": ("--adjust", "1"),
    "isotonic, behind": ("--adjust", "1", "--rows-follow", "train"),
    "temperature, train": ("--adjust", "1", "--target-prior", "train"),
    "vector, behind": ("--adjust", "1", "--rows-follow", "train"),
    "isotonic, train": ("--adjust", "1", "--target-prior", "train"),
    "temperature, shares": ("--adjust", "0.5", "--target-prior", "0.1,0.2,0.3,0.4"),
}
QUICK = ("temperature, inside", "isotonic, behind")
WITH_VACE = (*QUICK, "vector", "structured, inside", "temperature, train")


def expected_shift(arguments: tuple[str, ...]) -> Probs:
    """a log(pi_train / pi_target)."""
    if not arguments:
        return np.zeros(len(NAMES))
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    target = np.full(len(NAMES), 0.25)
    if given.get("--target-prior") == "train":
        target = PRIOR
    elif "--target-prior" in given:
        target = np.array([float(v) for v in given["--target-prior"].split(",")])
    return float(given["--adjust"]) * np.log(PRIOR / target)


@pytest.mark.parametrize(
    ("run", "case"),
    [pytest.param(True, c, marks=[] if c in QUICK else pytest.mark.slow, id=f"vace, {c}") for c in WITH_VACE]
    + [pytest.param(False, c, marks=pytest.mark.slow, id=c) for c in CASES],
    indirect=["run"],
)
def test_every_reader_of_a_trained_run_shows_one_number(run: Path, tmp_path: Path, case: str) -> None:
    method = case.partition(",")[0]
    call("calibrate", run, "--method", method, "--out", run / "calibrator.json", *CASES[case])
    calibrator = Calibrator.load(run / "calibrator.json")
    data = read_predictions(run / "predictions" / "test.parquet")
    by_hand = softmax_by_hand(calibrator.logits(data.logits) - expected_shift(CASES[case]))
    deployed = tmp_path / "m.onnx"
    call("recalibrate", run.parent / "plain.onnx", run / "calibrator.json", "--out", deployed)
    _all_readers_agree(run, deployed, np.load(run / "test.npy"), by_hand, data.labels, tmp_path)


def _all_readers_agree(
    run: Path, deployed: Path, pixels: NDArray[np.uint8], by_hand: Probs, labels: NDArray[np.int64], tmp_path: Path
) -> None:
    import onnxruntime as ort

    from calibrant.dashboard.folder.index import scan
    from calibrant.dashboard.numbers import measures
    from calibrant.dashboard.numbers.predictions_through import Scored
    from calibrant.serve import load
    from calibrant.serve.batch.order import source_of

    wanted, own = printed(by_hand, labels), Calibrator.load(run / "calibrator.json")
    # `evaluate RUN` finds predictions and calibrator by itself
    block = json.loads(call("evaluate", run, "--json", "--report", tmp_path / "r.html"))
    found = block["models"][1]["metrics"]
    assert (f"{found['nll']['value']:.4f}", f"{100 * found['ece']['value']:.2f} %") == wanted
    page = (tmp_path / "r.html").read_text()
    assert all(number in page for number in wanted)
    assert "top5_accuracy" not in found  # of four classes
    assert all(f"<span>{text}<" in page or f'"best">{text}<' in page for text in as_printed(found).values())
    folder_index = scan(run.parent)
    shown = next(r for r in folder_index.runs if r.path == run)
    test = shown.find("test")
    assert test is not None
    ref = next(c for c in folder_index.calibrators_for(shown, test) if c.path == run / "calibrator.json")
    scores = measures.scores(Scored.of(test, ref)).metrics
    assert (f"{scores['nll'].value:.4f}", f"{100 * scores['ece'].value:.2f} %") == wanted
    # every number, and the interval beside it, not only these two
    assert as_printed({key: m.to_dict() for key, m in scores.items()}) == as_printed(found)
    session = ort.InferenceSession(str(deployed), providers=["CPUExecutionProvider"])
    graph = np.asarray(session.run(["probabilities"], {"images": pixels})[0], np.float64)
    served = np.asarray(load(deployed, threads=1).predict(pixels).probabilities, np.float64)
    for answer in (graph, served):
        # Float32 differs in the last bits, which can turn the last digit; isotonic maps are steep, and a row whose
        # float32 probability lies on the other side of a knot goes its own way.
        near = np.abs(answer - by_hand).max(1) < 2e-5
        assert near.mean() > 0.95
        kept = answer[near] / answer[near].sum(1, keepdims=True)
        assert metrics.nll(kept, labels[near]) == pytest.approx(metrics.nll(by_hand[near], labels[near]), abs=5e-5)
        assert near.all() or own.method == "isotonic"
    # what `calibrant predict` writes of the deployed file, judged through the file's own formula
    names, source = read_predictions(run / "predictions" / "test.parquet"), source_of(load(deployed, threads=1))
    behind = own.logits(names.logits).astype(np.float32) if "applied" in source.model else names.logits
    replace(names, source=source, logits=behind).write(tmp_path / "served.parquet")
    plain, through = evaluate_files([tmp_path / "served.parquet"], [deployed])
    judged = through.evaluation
    if behind is names.logits:
        assert (f"{judged.nll.value:.4f}", f"{100 * judged.ece.value:.2f} %") == wanted
    else:  # steps in float32 may lie on the other side of an edge of a bin
        assert judged.nll.value == pytest.approx(metrics.nll(by_hand, labels), abs=5e-5)
        assert judged.accuracy.value == pytest.approx(metrics.accuracy(by_hand, labels))
    assert plain.notes == ()
    shift = OnnxFile.open(deployed).card().prior.shift()
    assert own.prior is not None
    np.testing.assert_allclose(0 if shift is None else shift, 0 if (s := own.prior.shift()) is None else s, atol=1e-9)


def test_export_takes_the_correction_over_and_an_explicit_one_wins(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call("calibrate", run, "--adjust", "1", "--out", run / "calibrator.json")
    call("export", run, "--calibrator", run / "calibrator.json", "--out", tmp_path / "own.onnx")
    data = read_predictions(run / "predictions" / "test.parquet")
    t = Calibrator.load(run / "calibrator.json").parameters["temperature"]
    by_hand = softmax_by_hand(data.logits.astype(np.float64) / t - np.log(4 * PRIOR))
    _all_readers_agree(run, tmp_path / "own.onnx", np.load(run / "test.npy"), by_hand, data.labels, tmp_path)
    call("export", run, "--calibrator", run / "calibrator.json", "--adjust", "0", "--out", tmp_path / "none.onnx")
    assert OnnxFile.open(tmp_path / "none.onnx").card().prior.shift() is None
    assert "--adjust 0 takes the place" in caplog.text


# ---- a head run ----


@pytest.fixture(scope="module")
def head_parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Pictures, and a feature cache of a small backbone."""
    import timm
    from safetensors.torch import save_file
    from torch import manual_seed

    from calibrant.train.heads.features.extract import FeatureConfig, extract

    root = tmp_path_factory.mktemp("head")
    rng = np.random.default_rng(0)
    for split, sizes in {"train": (20, 14, 8, 6), "test": (12, 12, 12, 12)}.items():
        for k, rows in enumerate(sizes):
            folder = root / "images" / split / NAMES[k]
            folder.mkdir(parents=True)
            for i in range(rows):
                seen = k if rng.random() < 0.6 else int(rng.integers(4))
                tint = np.array([[60, 0, 0], [0, 60, 0], [0, 0, 60], [30] * 3])[seen]
                pixels = rng.integers(0, 160, (40, 40, 3)) + tint
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    manual_seed(0)
    network = timm.create_model("test_vit", pretrained=False, num_classes=5, img_size=32)
    save_file(network.state_dict(), root / "weights.safetensors")
    weights = root / "weights.safetensors"
    extract(FeatureConfig("test_vit", root / "images", root / "feats", weights=weights, image_size=32))
    return root / "images", root / "feats"


HEADS: dict[str, list[str]] = {
    "temperature": ["posthoc.temperature=global"],
    "temperature, adjusted": ["posthoc.temperature=global", "posthoc.adjust=1.0"],
    "adjusted alone": ["posthoc.adjust=0.7"],
    "auto": ["posthoc.temperature=global", "posthoc.adjust=auto"],
    "class temperatures": ["posthoc.temperature=per-class", "posthoc.adjust=likelihood"],
    "balanced softmax": ["loss.name=balanced-softmax", "posthoc.temperature=global", "posthoc.adjust=0.5"],
    "vace": ["loss.name=vace", "posthoc.temperature=global", "posthoc.adjust=1.0"],
    "uniform": ["posthoc.temperature=global", "posthoc.target_prior=uniform"],
}


# The others are put into the first of these files, which has no correction that would stay under a calibrator without.
EXPORTED = ("temperature", "temperature, adjusted", "balanced softmax", "vace")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported") / "head.onnx"


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(HEADS, key=lambda case: case not in EXPORTED))
@pytest.mark.filterwarnings("ignore")
def test_every_reader_of_a_head_run_shows_one_number(
    head_parts: tuple[Path, Path], exported: Path, tmp_path: Path, case: str
) -> None:
    images, features = head_parts
    run = tmp_path / "runs" / "head"
    settings = [s for value in ["optimizer.epochs=15", *HEADS[case]] for s in ("--set", value)]
    facts = json.loads(call("head", features, *settings, "--data", images, "--out", run, "--json"))
    data = read_predictions(run / "predictions" / "test.parquet")
    calibrator = Calibrator.load(run / "calibrator.json")
    assert calibrator.prior is not None
    assert calibrator.prior.train is not None
    a = facts["posthoc"]["strength"]
    ratio = np.log(np.array(calibrator.prior.train) * len(NAMES))
    by_hand = softmax_by_hand(calibrator.logits(data.logits) - a * ratio)
    assert (f"{facts['test']['nll']:.4f}", f"{100 * facts['test']['ece']:.2f} %") == printed(by_hand, data.labels)
    assert "--adjust" not in facts["export"]
    words = facts["export"].split()
    deployed = tmp_path / "runs" / "m.onnx"
    if case in EXPORTED or not exported.exists():
        call(*words[1:-1], deployed)
    else:
        call("recalibrate", exported, run / "calibrator.json", "--out", deployed)
    if case == EXPORTED[0]:
        shutil.copy(deployed, exported)
    pixels = []
    card = OnnxFile.open(deployed).card()
    for name in data.ids:
        with Image.open(images / name) as image:
            pixels.append(card.preprocessing.pixels(image.convert("RGB")))
    _all_readers_agree(run, deployed, np.stack(pixels), by_hand, data.labels, tmp_path)


# ---- files of before ----


@pytest.mark.parametrize("kind", ["calibrate --adjust", "calibrate --adjust, absorbed", "head"])
def test_older_files_mean_what_they_meant(kind: str) -> None:
    """They named the shift they were fitted inside, or (of heads) the strength on top of what training absorbed."""
    ratio = np.log(PRIOR * 4)
    absorbed = 0.5 if "absorbed" in kind else 0.0
    fitted: dict[str, object] = {"rows": 10, "strength": 0.8}
    shift = 0.8 * ratio
    if kind != "head":
        fitted["log_prior_ratio"] = ratio.tolist()
    if absorbed:
        shift = 1.3 * np.log(PRIOR / [0.1, 0.2, 0.3, 0.4]) - absorbed * ratio
        fitted |= {"strength": 1.0, "log_prior_ratio": shift.tolist()}
    old = Calibrator("temperature", 4, {"temperature": 2.0}, fitted_on=fitted)
    source = Source(NAMES, tuple(PRIOR.tolist()), absorbed)
    z = np.random.default_rng(0).normal(size=(7, 4))
    found = Formula.of(old, source).probabilities(z)
    np.testing.assert_allclose(found, softmax_by_hand(z / 2 - shift), atol=1e-9)


def test_who_cannot_apply_a_formula_refuses() -> None:
    old_head = Calibrator("temperature", 4, {"temperature": 2.0}, fitted_on={"rows": 10, "strength": 0.8})
    wrong: dict[str, Callable[[], object]] = {
        "training prior is not known": lambda: Formula.of(old_head, Source(NAMES)),
        "has 4 classes, the predictions 2": lambda: Formula.of(old_head, Source(("a", "b"))),
        "--adjust needs": lambda: Formula.of(None, Source(NAMES), adjust=1.0),
    }
    for message, refused in wrong.items():
        with pytest.raises(CalibrantError, match=message):
            refused()


def test_the_logits_of_a_deployed_file_are_told_from_its_answers(run: Path, tmp_path: Path) -> None:
    data = read_predictions(run / "predictions" / "test.parquet")
    replace(data, source=replace(data.source, model={"deployed": "m"})).write(tmp_path / "served.parquet")
    (found,) = evaluate_files([tmp_path / "served.parquet"])
    assert "logits of a deployed file, without its calibrator and its correction of the class prior" in found.notes[0]
    others = replace(data.source, class_names=("a", "b", "c", "d"))
    replace(data, source=others).write(tmp_path / "others.parquet")
    with pytest.raises(CalibrantError, match="its classes are not those of the predictions"):
        evaluate_files([tmp_path / "others.parquet"], [run.parent / "plain.onnx"])
    log = replace(data.source, model={"applied": "everything in the deployed file"})
    replace(data, source=log).write(tmp_path / "log.parquet")
    with pytest.raises(CalibrantError, match="the predictions hold everything in the deployed file already"):
        evaluate_files([tmp_path / "log.parquet"], [run.parent / "plain.onnx"])


def test_class_temperatures_of_another_model_are_refused(run: Path, tmp_path: Path) -> None:
    call("calibrate", run, "--out", tmp_path / "c.json")
    data = read_predictions(run / "predictions" / "test.parquet")
    taus = (2.0, 1.0, 1.0, 1.0)
    other = Predictions(data.ids, data.labels, data.logits, replace(data.source, class_temperatures=taus))
    other.write(tmp_path / "other.parquet")
    with pytest.raises(CalibrantError, match="other class temperatures"):
        evaluate_files([tmp_path / "other.parquet"], [tmp_path / "c.json"])


def test_a_file_with_a_correction_is_refused_by_readers_that_would_leave_it_out(run: Path, tmp_path: Path) -> None:
    """Format 2; without a correction it stays format 1, which older versions apply rightly."""
    for arguments, version in (((), 1), (("--adjust", "1"), 2), (("--adjust", "1", "--target-prior", "train"), 1)):
        call("calibrate", run, "--out", tmp_path / "c.json", *arguments)
        assert json.loads((tmp_path / "c.json").read_text())["format_version"] == version
