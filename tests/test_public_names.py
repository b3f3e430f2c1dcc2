"""The names that other code may rely on: each package's front door, its signatures, the commands.

A name that goes, or a new one, is a decision: it is made here as well.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import calibrant

# package: the names that docs/architecture.md promises, which is the least that its __all__ holds.
PROMISED = {
    "calibrant": {
        "CalibratedClassifier", "LogitCalibrator", "__version__", "adopt", "compare", "evaluate", "fit", "fit_head",
        "load", "load_predictions", "log_report", "predict", "reliability_diagram", "risk_coverage", "save_run",
        "scorer", "train",
    },
    "calibrant.calibration": {"METHODS", "Calibrator", "Evaluation", "Measured", "evaluate", "fit"},
    "calibrant.calibration.metrics": {
        "accuracy", "adaptive_ece", "aurc", "auroc", "balanced_accuracy", "brier", "brier_decomposition",
        "classwise_ece", "debiased_ece", "ece", "macro_f1", "mce", "nll", "over_under_ece", "rms_calibration_error",
        "smooth_ece", "top_k_accuracy",
    },
    "calibrant.calibration.calibrators": {"METHODS", "Calibrator", "fit"},
    "calibrant.export": {
        "About", "Comparison", "ExportConfig", "Interface", "Trained", "adopt", "export_onnx", "export_run",
    },
    "calibrant.serve": {"Classifier", "Result", "load"},
    "calibrant.train": {"TrainConfig", "TrainedModel", "fit", "load_run", "predict_run", "train_config"},
    "calibrant.train.losses": {"LOSSES", "Loss", "create_loss"},
    "calibrant.train.vit": {"METHODS", "ReducedViT", "TokenReduction", "reduce_tokens"},
}  # fmt: skip
NEEDS = {
    "calibrant": "torch",
    "calibrant.train": "torch",
    "calibrant.train.losses": "torch",
    "calibrant.train.vit": "timm",
    "calibrant.export": "onnx",
}
LOSSES = (
    "ce ls mbls acls focal flsd53 dual-focal adafocal ecp mmce mdca cpc crl ldam balanced-softmax vace fedlas-ls "
    "fedlas-mbls"
)
METHODS = (
    "temperature vector matrix dirichlet classwise-temperature isotonic histogram beta bbq enir ensemble-temperature"
)
METRICS = "ece adaptive_ece classwise_ece mce over_under_ece smooth_ece nll brier accuracy balanced_accuracy aurc auroc"
COMMANDS = (
    "demo train search shards features head sweep predict calibrate evaluate export adopt verify inspect recalibrate "
    "adjust set-threshold relabel quantize serve bench-serve dashboard"
)


@pytest.mark.parametrize("package", PROMISED)
def test_no_room_bears_the_name_of_what_its_house_promises(package: str) -> None:
    """`import calibrant.serve.load.x` would put the folder `load` in the place of the function."""
    where = next(iter(import_module(package).__path__)) if package != "calibrant" else Path(calibrant.__file__).parent
    rooms = {entry.stem for entry in Path(where).iterdir() if entry.is_dir() or entry.suffix == ".py"}
    assert not rooms & (PROMISED[package] - {"__version__", "train"})  # a package that can be called as well


@pytest.mark.parametrize("package", PROMISED)
def test_a_front_door_keeps_its_promises_and_lists_what_it_opens(package: str) -> None:
    if package in NEEDS:
        pytest.importorskip(NEEDS[package])
    module = import_module(package)
    listed = module.__all__
    assert PROMISED[package] <= set(listed)
    assert len(set(listed)) == len(listed)
    assert [name for name in listed if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PROMISED)
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    """Packages that import lazily answer like all others: hasattr and getattr with a default work."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = import_module(package).no_such_name


def test_the_front_door_lists_and_says_what_it_opens() -> None:
    pytest.importorskip("torch")
    assert set(dir(calibrant)) >= PROMISED["calibrant"] | {"calibration", "errors", "serve"}
    for name in PROMISED["calibrant"] - {"__version__"}:
        assert callable(getattr(calibrant, name)), name
        assert (getattr(calibrant, name).__doc__ or "").strip(), name
    assert calibrant.calibration.metrics.ece([[0.5, 0.5]], [0]) == 0.5


def test_every_promised_loss_is_made_by_its_name() -> None:
    pytest.importorskip("torch")
    from calibrant.train.losses import create_loss

    kinds = {p.name: p.kind for p in inspect.signature(create_loss).parameters.values()}
    assert list(kinds)[0] == "name"
    assert {"num_classes", "feature_dim", "class_counts"} <= {
        n for n, k in kinds.items() if k is inspect.Parameter.KEYWORD_ONLY
    }
    for name in LOSSES.split():
        loss = create_loss(name, num_classes=3, feature_dim=4, class_counts=[5, 3, 2])
        assert callable(loss), name


def test_every_promised_calibrator_is_a_method() -> None:
    from calibrant.calibration import METHODS as methods

    assert set(METHODS.split()) <= set(methods)


@pytest.mark.parametrize("name", METRICS.split())
def test_a_metric_takes_probabilities_labels_and_weights(name: str) -> None:
    metric = getattr(import_module("calibrant.calibration.metrics"), name)
    parameters = inspect.signature(metric).parameters
    assert list(parameters)[:2] == ["probs", "labels"]
    for option in set(parameters) - {"probs", "labels"}:
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY, option
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 40)
    metric(probs, rng.integers(0, 3, 40), weights=np.ones(40))


def test_tokens_are_reduced_by_keywords() -> None:
    pytest.importorskip("timm")
    from calibrant.train.vit import reduce_tokens

    kinds = {p.name: p.kind for p in inspect.signature(reduce_tokens).parameters.values()}
    assert list(kinds)[:2] == ["vit", "method"]
    assert all(kinds[n] is inspect.Parameter.KEYWORD_ONLY for n in ("keep_rate", "locations", "cla", "cache_tokens"))


def test_the_commands_are_those_of_the_documents() -> None:
    from calibrant.commands.root import COMMANDS as found

    assert set(COMMANDS.split()) <= set(found)


def test_an_export_is_called_as_the_documents_say() -> None:
    pytest.importorskip("onnx")
    from calibrant.export import export_onnx

    known = inspect.signature(export_onnx).parameters
    promised = ["class_names", "preprocessing", "calibrator", "train_prior", "target_prior", "adjust", "knobs"]
    assert [*known][:2] == ["model", "path"]
    assert {known[name].kind for name in promised} == {inspect.Parameter.KEYWORD_ONLY}
    assert [name for name in promised if known[name].default is inspect.Parameter.empty] == promised[:2]
    assert known["knobs"].default == "baked"
    assert len(known) <= 15  # what else there is to say stands in the records Trained, Interface, About, Comparison
