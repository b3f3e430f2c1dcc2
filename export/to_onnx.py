"""Exports a torch classifier to one ONNX file in which the calibrated, prior-adjusted probability is computed."""

from __future__ import annotations

import copy
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from calibrant._version import __version__
from calibrant.artifacts.model_card import Head, InputSpec, ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.errors import CheckFailed, ModelError
from calibrant.export.checks.locate import first_difference
from calibrant.export.checks.parity import EVERY_LEVEL, Expected, Report, Tolerance, compare, steady_rows
from calibrant.export.graph.assemble import build_tail, knob_defaults, write_deployed
from calibrant.export.graph.fold import check_temperatures
from calibrant.export.graph.head import cut, find_head, rename
from calibrant.export.graph.own_prior import map_alone, own_prior, say_what_wins
from calibrant.export.graph.settings import Vector, check_settings, checked_names, checked_priors
from calibrant.export.graph.tail import OUTPUTS, check_choices, tail_reads
from calibrant.export.graph.trace import BATCH, trace
from calibrant.export.graph.wrapper import Body, Formula, Input, split_outputs
from calibrant.images.preprocessing import Preprocessing
from calibrant.runtime import runtime
from calibrant.shares import shares
from calibrant.train.model.feature_model import FeatureModel
from calibrant.train.vit.deploy import for_export

log = logging.getLogger(__name__)
LARGEST = (1 << 31) - (1 << 24)  # protobuf refuses messages of 2 GB; some room for the metadata
IR_VERSION = 8  # what onnxruntime 1.16 of 2023 still reads; the exporter's own is newer for nothing that we use


def export_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    class_names: Sequence[str],
    preprocessing: Preprocessing,
    calibrator: Calibrator | None = None,
    class_temperatures: Vector | None = None,
    gauge: str = "none",
    train_prior: Vector | None = None,
    target_prior: Vector | None = None,
    adjust: float | None = None,
    absorbed: float = 0.0,
    prior_floor: float | None = None,
    knobs: Literal["baked", "runtime", "required"] = "baked",
    input: Input = "uint8",
    outputs: Sequence[str] = ("probabilities", "logits"),
    ood: Mapping[str, Any] | None = None,
    opset: int = 18,
    name: str | None = None,
    description: str = "",
    author: str | None = None,
    licence: str | None = None,
    metrics: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    abstain_below: float | None = None,
    conformal: Mapping[str, Any] | None = None,
    real_images: NDArray[Any] | None = None,
    tolerance: Tolerance | None = None,
    verify: bool = True,
) -> ModelCard:
    """Writes `path` and gives the model card that is inside it.

    model: takes float NCHW images, normalised, gives logits or (logits, features). `adjust` is the TOTAL strength of
    the prior correction: the graph applies what training has not absorbed. `ood` is {"kind": "energy"},
    {"kind": "max-softmax"} or {"kind": "feature-norm", "mu": ..., "sd": ...} and adds the output `ood_score`.
    `real_images` (as the graph takes them) join the random ones in the comparison with torch; if that fails, the file
    is kept as NAME.failed.onnx and CheckFailed says where the two differ.
    """
    path = Path(path)
    classes = checked_names(class_names)
    if ood is not None and "ood_score" not in outputs:
        outputs = [*outputs, "ood_score"]
    check_choices(outputs, ood, knobs)
    check_settings(input, opset, abstain_below)
    named = tuple(o for o in OUTPUTS if o in outputs)
    own = None if calibrator is None else own_prior(calibrator, train_prior, absorbed)
    if own is not None and adjust is None and own.shift() is not None:
        prior = (
            own
            if target_prior is None
            else replace(own, target=tuple(shares(target_prior, classes=len(classes)).tolist()))
        )
    else:
        say_what_wins(own, adjust)
        prior = checked_priors(classes, train_prior, target_prior, adjust, absorbed, prior_floor)
    taus = None if class_temperatures is None else np.asarray(class_temperatures, np.float64)
    if taus is not None:
        check_temperatures(taus, len(classes))
    network = prepare(model)
    body = Body(network, preprocessing, input).eval()
    features = _probe(body, preprocessing, len(classes))
    traced = Body(lean(network), preprocessing, input).eval()
    graph = trace(traced, preprocessing, opset=opset, outputs=["logits", "features"] if features else ["logits"])
    head, weight, bias, width = _split(graph, len(classes), features)
    card = ModelCard(
        classes=classes,
        preprocessing=preprocessing,
        name=name or path.stem,
        input=InputSpec(dtype=input, layout="NHWC" if input == "uint8" else "NCHW"),
        outputs=named,
        class_temperatures=None if taus is None else tuple(map(float, taus)),
        gauge=gauge,
        calibrator=None if calibrator is None else map_alone(calibrator),
        prior=prior,
        knobs=knobs,
        head=head,
        conformal=conformal,
        ood=ood,
        abstain_below=abstain_below,
        metrics=dict(metrics or {}),
        source=dict(source or {}),
        versions=_versions(),
        description=description,
        author=author,
        licence=licence,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    tail = build_tail(card, weight, bias, width, BATCH)
    cut(graph, tail_reads(tail))
    graph.ir_version = IR_VERSION if opset <= 18 else graph.ir_version
    with tempfile.TemporaryDirectory(dir=_folder(path), prefix=".calibrant-export-") as folder:
        draft = Path(folder) / path.name
        _save(graph, draft)
        del graph
        card = write_deployed(OnnxFile.open(draft), draft, card, tail)
        if verify:
            reference = Reference(body, len(classes), card, calibrator)
            card = _verified(draft, path, card, reference, traced, real_images, tolerance)
        for data in OnnxFile.open(draft).external_files():
            data.replace(path.parent / data.name)
        draft.replace(path)
    return card


class Reference:
    """The deployed logits by torch, in float64 behind the network: what the file is compared with."""

    def __init__(self, body: Body, classes: int, card: ModelCard, calibrator: Calibrator | None) -> None:
        self.body = body
        self.bends = calibrator is not None and calibrator.as_affine() is None
        self.formula = Formula(
            classes,
            class_temperatures=card.class_temperatures,
            gauge=card.gauge,
            calibrator=calibrator,
            shift=card.prior.shift(),
        )

    def __call__(self, images: NDArray[Any]) -> Expected:
        z = self.network_logits(images)
        steady = steady_rows(self._deployed, z) if self.bends else np.ones(len(z), bool)
        return Expected(self._deployed(z), steady, self.bends)

    def _deployed(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.formula(torch.from_numpy(z)).numpy())

    def network_logits(self, images: NDArray[Any]) -> NDArray[np.float64]:
        rows = []
        with torch.inference_mode():
            for start in range(0, len(images), 16):
                out = split_outputs(self.body(torch.from_numpy(np.array(images[start : start + 16]))), "the network")
                rows.append(out.logits.double().numpy())
        return np.concatenate(rows)


def prepare(model: nn.Module) -> nn.Module:
    """The network to trace, in evaluation mode; the caller's module is left as it is."""
    network = copy.deepcopy(model).eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return network.float().cpu()


def lean(network: nn.Module) -> nn.Module:
    """The network as it is traced: vision transformers get a rewritten twin without the training machinery."""
    if isinstance(network, FeatureModel):
        twin = copy.copy(network)
        twin._modules = dict(network._modules)
        twin.network = for_export(network.network)
        return twin
    return for_export(network)


def _probe(body: Body, preprocessing: Preprocessing, classes: int) -> bool:
    """Runs the network once; does it give features too?"""
    with torch.inference_mode():
        try:
            out = split_outputs(body(body.example(preprocessing, 2)), type(body.network).__name__)
        except RuntimeError as error:
            raise ModelError(
                f"the network does not run on {preprocessing.size[0]} x {preprocessing.size[1]} images "
                f"({str(error).splitlines()[0][:200]})",
                fix="give the preprocessing that it was trained with",
            ) from None
    if out.logits.shape[1] != classes:
        raise ModelError(
            f"the network has {out.logits.shape[1]} outputs but there are {classes} class names",
            fix="give the class names in the order of the outputs",
        )
    return out.features is not None


def _split(
    graph: onnx.ModelProto, classes: int, features: bool
) -> tuple[Head, NDArray[np.float64] | None, NDArray[np.float64] | None, int | None]:
    """Names the values between body and tail: `features` and, where there is no matrix head, `raw_logits`."""
    found = find_head(graph, "logits", classes)
    dims = {o.name: [d.dim_value for d in o.type.tensor_type.shape.dim] for o in graph.graph.output}
    width = int(dims["features"][1]) if features else None
    if found is None:
        rename(graph, "logits", "raw_logits")
        return Head(kind="logits", input="raw_logits", feature_dim=width), None, None, width
    name = found.source
    if found.flatten:
        name = "head_input"
        graph.graph.node.append(onnx.helper.make_node("Flatten", [found.source], [name], name="head_flatten", axis=1))
        graph.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, [BATCH, found.weight.shape[1]]))
    if not features:
        rename(graph, name, "features")
        name, width = "features", found.weight.shape[1]
    return Head(kind="gemm", input=name, feature_dim=width), found.weight, found.bias, width


def _save(graph: onnx.ModelProto, path: Path) -> None:
    size = sum(len(t.raw_data) for t in graph.graph.initializer)
    if size <= LARGEST:
        path.write_bytes(graph.SerializeToString())
        return
    onnx.save_model(graph, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)


def _verified(
    draft: Path,
    path: Path,
    card: ModelCard,
    reference: Reference,
    traced: Body,
    real: NDArray[Any] | None,
    tolerance: Tolerance | None,
) -> ModelCard:
    """Compares the draft with torch and writes the result into its card."""
    from calibrant.export.edit import restamp

    generator = torch.Generator().manual_seed(0)
    random = reference.body.example(card.preprocessing, 16, generator)
    images = {"random": random.numpy()}
    if real is not None:
        images["real"] = real
    report = compare(draft, reference, images, tolerance=tolerance, knobs=knob_defaults(card))
    if not report.passed:
        kept = path.with_name(f"{path.stem}.failed{path.suffix}")
        _keep(draft, kept)
        raise CheckFailed(
            f"{failure(report)}; {explain(report, kept, traced, random[:2])}",
            where=kept,
            fix="the file is kept for a look; do not deploy it",
        )
    return restamp(draft, replace(card, verify=report.to_dict()))


def _keep(draft: Path, kept: Path) -> None:
    """Weights beside the draft get the new name too: under the old one they may belong to an older file."""
    if not OnnxFile.open(draft).external_names():
        draft.replace(kept)
        return
    model = onnx.load(str(draft))
    onnx.save_model(model, str(kept), save_as_external_data=True, location=f"{kept.name}.data", size_threshold=1024)


def failure(report: Report) -> str:
    worst = report.worst
    return (
        f"onnxruntime and torch differ by {worst.probabilities:.2g} in probabilities (allowed "
        f"{report.tolerance.probabilities:.0e}) and {worst.logits:.2g} of the spread in logits, on {worst.images} "
        f"images in batches of {worst.batch} at optimisation level {worst.level}"
    )


def explain(report: Report, path: Path, traced: Body, example: torch.Tensor) -> str:
    """Which node differs first, or which optimisation level of onnxruntime brings the difference in."""
    passed = {level: all(c.passed for c in report.checks if c.level == level) for level in EVERY_LEVEL}
    tried = {c.level for c in report.checks}
    if "disabled" in tried and passed["disabled"]:
        level = next(v for v in reversed(EVERY_LEVEL) if v in tried and not passed[v])
        return f"without optimisation they agree: a fusion at onnxruntime's level {level} is what differs"
    try:
        found = first_difference(path, traced, example)
    except Exception as error:  # a second failure must not hide the first
        log.debug("could not locate the difference", exc_info=error)
        return "the node that differs could not be located"
    return (
        str(found)
        if found is not None
        else "every value of the network agrees, so the classifier or what follows differs"
    )


def _versions() -> dict[str, str]:
    import timm

    return {
        "calibrant": __version__, "torch": torch.__version__, "onnx": onnx.__version__, "timm": timm.__version__,
        "onnxruntime": runtime().__version__,
    }  # fmt: skip


def _folder(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.parent
