"""A head run is a run: one network that gives what the two-step pipeline (features, then head) gives."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration import Calibrator
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, ConfigError
from calibrant.train.heads.cli import head, sweep
from calibrant.train.heads.config import head_config
from calibrant.train.heads.experiment import run_experiment
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.features.extract import FeatureConfig, extract
from calibrant.train.heads.matrices import Matrices
from calibrant.train.heads.run import export_command, write_run
from calibrant.train.run.folder import load_run

SIZE = 32
BASE = ["data.val_per_class=1", "optimizer.epochs=5", "optimizer.batch_size=4"]


@pytest.fixture(scope="session")
def birds(images: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> FeatureCache:
    out = tmp_path_factory.mktemp("birds") / "feats"
    views = ("eval", "flip", "full")
    return extract(FeatureConfig("test_vit", images, out, weights=weights, image_size=SIZE, views=views)).cache


TWO = ['data.test_views=["eval","flip"]', "data.average=logits", "optimizer.epochs=20"]
KINDS = {
    "linear": ["input.transform=standardise"],
    "linear, raw": [],
    "linear, root": ["input.transform=center", "input.power=0.5"],
    "linear, unit": ["input.transform=l2"],
    "cosine": ["head.kind=cosine", "input.transform=standardise", "loss.name=balanced-softmax"],
    "mlp": ["head.kind=mlp", "head.hidden=[8,6]", "head.activation=gelu_ln", "head.dropout=0.2"],
    "arcface": ["head.kind=arcface"],
    "ldam": ["loss.name=ldam"],
    "prototype": ["head.kind=prototype"],
    "ncm": ["head.kind=ncm", "head.metric=cosine"],
    "lda": ["head.kind=lda", "head.prior_rows=1.0"],
    "lda, posterior means": ["head.kind=lda", "head.between=0.1", "head.shrinkage=ledoit-wolf", "input.power=0.5"],
    "three cosine heads": ["head.kind=cosine", "ensemble.heads=3"],
    "logistic": ["head.kind=logistic"],
    "vace": ["loss.name=vace"],
    "mlp, logits of two views": ["head.kind=mlp", "head.hidden=[8]", *TWO],
    "cosine, logits of two views": ["head.kind=cosine", *TWO],
    "two views": ['data.test_views=["eval","flip"]', 'data.train_views=["eval","flip"]', "input.transform=standardise"],
}


@pytest.mark.parametrize("name", KINDS)
def test_the_fused_network_says_what_the_two_steps_say(
    name: str, birds: FeatureCache, images: Path, tmp_path: Path
) -> None:
    config = head_config({}, [*BASE, *KINDS[name]])
    result = run_experiment(Matrices(birds), config)
    run = tmp_path / "run"
    write_run(run, birds, result, data=images)
    trained = load_run(run)
    assert trained.class_names == ("class0", "class1")
    assert trained.absorbed == pytest.approx(result.trained.absorbed)
    expected = read_predictions(run / "predictions" / "test.parquet").logits
    assert result.test is not None
    pixels = []
    for id in result.test.ids:
        with Image.open(images / id) as image:
            pixels.append(trained.preprocessing.pixels(image.convert("RGB")))
    with torch.no_grad():
        logits, features = trained.network(torch.from_numpy(trained.preprocessing.normalise(np.stack(pixels))))
        claimed = trained.adjust(logits).numpy()
    assert features.shape == (len(pixels), trained.network.feature_dim)
    np.testing.assert_allclose(softmax(claimed), softmax(expected), atol=1e-5)
    np.testing.assert_allclose(claimed, expected, rtol=1e-3, atol=1e-4)


def test_logits_of_views_are_averaged_and_not_their_features(birds: FeatureCache) -> None:
    settings = [*BASE, "head.kind=cosine", 'data.test_views=["eval","flip"]']
    result = run_experiment(Matrices(birds), head_config({}, [*settings, "data.average=logits"]))
    other = run_experiment(Matrices(birds), head_config({}, settings))
    parts = [torch.from_numpy(birds.read("test", view).features) for view in ("eval", "flip")]
    by_hand = torch.stack([result.trained.logits(x) for x in parts]).mean(0).numpy()
    assert result.test_logits is not None
    assert other.test_logits is not None
    np.testing.assert_allclose(result.test_logits, by_hand, atol=1e-6)
    np.testing.assert_allclose(other.test_logits, other.trained.logits((parts[0] + parts[1]) / 2).numpy(), atol=1e-6)
    assert np.abs(result.test_logits - other.test_logits).max() > 1e-3
    with pytest.raises(ConfigError, match="averages over one view"):
        run_experiment(Matrices(birds), head_config({}, ["data.average=logits"]))
    with pytest.raises(ConfigError, match=r"data\.folds averages features"):
        run_experiment(Matrices(birds), head_config({}, [
            *settings[3:], 'data.train_views=["eval","flip"]', "data.average=logits", "data.folds=2",
        ]))  # fmt: skip


def test_a_head_on_several_layers_is_one_network(images: Path, weights: Path, tmp_path: Path) -> None:
    cache = extract(
        FeatureConfig(
            "test_vit", images, tmp_path / "f", weights=weights, image_size=SIZE, pooling="class+mean", layers=3
        )
    ).cache
    result = run_experiment(Matrices(cache), head_config({}, BASE))
    write_run(tmp_path / "run", cache, result, data=images)
    trained = load_run(tmp_path / "run")
    assert result.test is not None
    expected = read_predictions(tmp_path / "run" / "predictions" / "test.parquet").logits
    with Image.open(images / result.test.ids[0]) as image:
        pixels = trained.preprocessing.pixels(image.convert("RGB"))
    with torch.no_grad():
        logits, _ = trained.network(torch.from_numpy(trained.preprocessing.normalise(pixels[None])))
    np.testing.assert_allclose(logits.numpy(), expected[:1], rtol=1e-3, atol=1e-4)


def test_the_same_head_is_the_same_bytes(birds: FeatureCache, tmp_path: Path) -> None:
    """The classifier that timm insists on is never used; as it was drawn, no two files were the same."""
    config, seen = head_config({}, BASE), []
    for attempt in range(2):
        torch.manual_seed(attempt)  # whatever the process has drawn before
        run = tmp_path / str(attempt) / "run"
        write_run(run, birds, run_experiment(Matrices(birds), config))
        names = ("model.safetensors", "head.json", "predictions/val.parquet", "predictions/test.parquet")
        seen.append([(run / name).read_bytes().replace(f"{attempt}/run".encode(), b"") for name in names])
    assert seen[0] == seen[1]


def test_standardising_and_cosine_scale_vanish_into_the_last_matrix(birds: FeatureCache, tmp_path: Path) -> None:
    for settings in (["input.transform=standardise"], ["head.kind=cosine"]):
        result = run_experiment(Matrices(birds), head_config({}, [*BASE, *settings]))
        write_run(tmp_path / settings[0], birds, result)
        network = load_run(tmp_path / settings[0]).network
        (last,) = network.classifier_layers()
        assert isinstance(last, torch.nn.Linear)
        transform = network.network.head.transform  # type: ignore[union-attr]
        assert bool((transform.scale == 1).all())  # type: ignore[union-attr]
        assert bool((transform.mean == 0).all())  # type: ignore[union-attr]


def test_views_outside_the_graph_train_and_measure_but_do_not_deploy(birds: FeatureCache, tmp_path: Path) -> None:
    config = head_config({}, [*BASE, 'data.test_views=["eval","full"]'])
    done = write_run(tmp_path / "run", birds, run_experiment(Matrices(birds), config))
    assert done.export_command is None
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_the_summary_adds_up_the_strengths_and_warns_of_two(birds: FeatureCache, tmp_path: Path) -> None:
    settings = ["loss.name=balanced-softmax", "posthoc.adjust=0.5", "posthoc.temperature=global"]
    result = run_experiment(Matrices(birds), head_config({}, [*BASE, *settings]))
    done = write_run(tmp_path / "run", birds, result)
    facts = json.loads((tmp_path / "run" / "head.json").read_text())
    assert facts["corrections"] == {"loss": 1.0, "post hoc": 0.5}
    assert facts["total_strength"] == 1.5
    assert "corrected 2 times: loss 1.00 + post hoc 0.50 = 1.50 in total" in facts["double_correction"]
    assert (done.export_command or "").startswith(f"calibrant export {tmp_path / 'run'} ")
    assert export_command(Path("run"), result).startswith("calibrant export ./run --calibrator run/")
    near = run_experiment(Matrices(birds), head_config({}, [*BASE, "loss.name=balanced-softmax", "posthoc.adjust=0.1"]))
    assert near.double_correction() is None
    # In the formula the post-hoc part is divided by the temperature, as the logits are; it travels with the calibrator.
    prior = Calibrator.load(tmp_path / "run" / "calibrator.json").prior
    assert prior is not None
    assert prior.total == pytest.approx(1.0 + 0.5 * result.posthoc.weights[0], rel=1e-6)
    assert "--adjust" not in (done.export_command or "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_one_onnx_file_gives_the_two_step_probabilities(birds: FeatureCache, images: Path, tmp_path: Path) -> None:
    from calibrant.export.config import ExportConfig
    from calibrant.export.run import export_run
    from calibrant.serve import load

    settings = [
        "head.kind=cosine", "input.transform=standardise", "loss.name=balanced-softmax", "posthoc.adjust=0.7",
        "posthoc.temperature=global", "data.imbalance=3",
    ]  # fmt: skip
    result = run_experiment(Matrices(birds), head_config({}, [*BASE, *settings]))
    run = tmp_path / "run"
    write_run(run, birds, result, data=images)
    card = export_run(run, tmp_path / "m.onnx", ExportConfig(calibrator=run / "calibrator.json", knobs="runtime"))
    assert card.prior.total == result.trained.absorbed + result.posthoc.strength
    assert result.test is not None
    assert result.test_logits is not None
    pixels = []
    for id in result.test.ids:
        with Image.open(images / id) as image:
            pixels.append(card.preprocessing.pixels(image.convert("RGB")))
    classifier = load(tmp_path / "m.onnx")
    given = classifier.predict(np.stack(pixels)).probabilities
    np.testing.assert_allclose(given, result.posthoc.probabilities(result.test_logits), atol=1e-5)


# Commands


def call(command: object, *arguments: object) -> str:
    done = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)  # type: ignore[arg-type]
    if isinstance(done.exception, CalibrantError):
        return f"Error: {done.exception}"
    assert done.exception is None, done.exception
    return done.output


def test_head_command_prints_metrics_and_the_total_strength(cache: FeatureCache) -> None:
    text = call(
        head, cache.path, "--loss", "balanced-softmax", "--set", "optimizer.epochs=3", "--set", "posthoc.adjust=1",
        "--set", "data.val_per_class=4",
    )  # fmt: skip
    assert "prior correction: loss 1.00 + post hoc 1.00; total strength 2.00" in text
    assert "Warning: the class prior is corrected 2 times" in text
    assert "macro_f1_fg" in text
    assert re.search(r"val \(\d+\) +test \(\d+\) +95 % interval", text)
    assert re.search(r"\naccuracy +0\.\d+ +0\.\d+ +0\.\d+ \.\. [01]\.\d+\n", text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "loss.nam=focal"], "has no option 'nam'"),
        (["--set", "haed.kind=mlp"], 'did you mean "head"'),
        (["--kind", "svm"], '"svm" is not possible'),
        (["--loss", "focl"], "there is no loss 'focl'"),
        (["--set", "data.val_per_class=20"], "cannot be split"),
        (["--set", 'data.test_views=["flop"]'], 'has no view "flop"'),
        (["--set", "data.background=z"], 'no class "z"'),
        (["--set", "posthoc.adjust=likelyhood"], '"likelyhood" is not possible; use auto, likelihood, a float'),
        (["--set", "head.heads=4"], "a linear head does not read head.heads"),
        (["--device", "gpu"], '"gpu" is not a device'),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], words: str, cache: FeatureCache) -> None:
    text = call(head, cache.path, "--set", "optimizer.epochs=2", *arguments)
    assert text.startswith("Error: ")
    assert words in text
    assert "\n" not in text.strip()


def test_a_folder_that_is_no_cache_says_how_to_make_one(tmp_path: Path) -> None:
    assert "calibrant features --model" in call(head, tmp_path)


def test_sweep_command_needs_features_and_exactly_one_plan(tmp_path: Path, cache: FeatureCache) -> None:
    file = tmp_path / "s.toml"
    file.write_text("seeds = [0]\n")
    assert "no features" in call(sweep, file)
    assert "exactly one of" in call(sweep, file, "--features", cache.path, "--out", tmp_path / "out")
    file.write_text('seeds = [0]\n[[variant]]\nname = "x"\nset.loss.name = "focl"\n')
    text = call(sweep, file, "--features", cache.path, "--out", tmp_path / "out")
    assert 'variant "x"' in text
    assert "there is no loss 'focl'; did you mean \"focal\"?" in text
    with pytest.raises(ConfigError):
        head_config({}, ["data.train_views=[]"])


POSTHOC = {
    "adjust": "posthoc.adjust=1.0",
    "adjust auto": "posthoc.adjust=auto",
    "adjust likelihood": "posthoc.adjust=likelihood",
    "temperature": "posthoc.temperature=global",
    "temperature per class": "posthoc.temperature=per-class",
    "recall": "posthoc.recall=0.9",
    "precision": "posthoc.precision=0.9",
}
TOY = ["data.val_per_class=5", "data.imbalance=4", "optimizer.epochs=5", "data.split_seed=1"]


@pytest.mark.parametrize("name", POSTHOC)
def test_a_post_hoc_switch_changes_probabilities_and_never_the_head(name: str, cache: FeatureCache) -> None:
    matrices = Matrices(cache)
    off = run_experiment(matrices, head_config({}, TOY))
    on = run_experiment(matrices, head_config({}, [*TOY, POSTHOC[name]]))
    for a, b in zip(off.trained.head.parameters(), on.trained.head.parameters(), strict=True):
        assert torch.equal(a, b)
    assert np.array_equal(off.val_logits, on.val_logits)
    assert np.array_equal(off.posthoc.logits(off.val_logits), off.val_logits.astype(np.float64))
    assert not np.allclose(on.posthoc.probabilities(on.val_logits), off.posthoc.probabilities(off.val_logits))


def test_redraws_fit_on_more_rows_and_keep_the_head_and_the_images(cache: FeatureCache) -> None:
    matrices = Matrices(cache)
    fitted = [*TOY, "posthoc.adjust=likelihood", "posthoc.temperature=global"]
    off = run_experiment(matrices, head_config({}, [*fitted, "posthoc.redraws=0"]))
    plain = run_experiment(matrices, head_config({}, fitted))
    on = run_experiment(matrices, head_config({}, [*fitted, "posthoc.redraws=3"]))
    assert np.array_equal(off.posthoc.weights, plain.posthoc.weights)
    assert np.array_equal(on.val_logits, off.val_logits)
    assert on.posthoc.weights[0] != off.posthoc.weights[0]
    assert on.val_metrics != off.val_metrics


def test_redraws_are_refused_where_validation_is_a_split_of_its_own(tmp_path: Path, cache: FeatureCache) -> None:
    for file in list(cache.path.glob("test-*")):
        file.rename(file.with_name(file.name.replace("test-", "val-")))
    description = json.loads((cache.path / "features.json").read_text())
    for key in ("splits", "images"):
        description[key]["val"] = description[key].pop("test")
    (cache.path / "features.json").write_text(json.dumps(description))
    with pytest.raises(ConfigError, match="validation split of its own"):
        run_experiment(Matrices(FeatureCache.open(cache.path)), head_config({}, ["posthoc.redraws=2"]))
