"""Exports a torch classifier to one ONNX file in which the calibrated, prior-adjusted probability is computed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

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
from calibrant.export.checks.failure import explain, failure
from calibrant.export.checks.golden import with_golden_rows
from calibrant.export.checks.parity import Comparison, compare
from calibrant.export.config import Input
from calibrant.export.graph.assemble import build_tail, knob_defaults, write_deployed
from calibrant.export.graph.cutting import cut, rename
from calibrant.export.graph.fold import check_temperatures
from calibrant.export.graph.head import add_features, find_head
from calibrant.export.graph.own_prior import deployed_prior, map_alone
from calibrant.export.graph.reference import TorchReference, lean, prepare
from calibrant.export.graph.saving import save
from calibrant.export.graph.settings import About, Interface, Trained, Vector, check_settings, checked_names
from calibrant.export.graph.tail import OUTPUTS, check_choices, tail_reads
from calibrant.export.graph.trace import BATCH, trace
from calibrant.export.graph.wrapper import Body, split_outputs
from calibrant.images.preprocessing import Preprocessing
from calibrant.runtime import runtime

_INPUTS: dict[Input, InputSpec] = {
    "uint8": InputSpec(),
    "float32": InputSpec(dtype="float32", layout="NCHW"),
    "rows": InputSpec("rows", "float32", "NF"),
}
IR_VERSION = 8  # what onnxruntime 1.16 of 2023 still reads; the exporter's own is newer for nothing that we use


def export_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    class_names: Sequence[str],
    preprocessing: Preprocessing,
    calibrator: Calibrator | None = None,
    trained: Trained = Trained(),
    train_prior: Vector | None = None,
    target_prior: Vector | None = None,
    adjust: float | None = None,
    prior_floor: float | None = None,
    knobs: Literal["baked", "runtime", "required"] = "baked",
    interface: Interface = Interface(),
    abstain_below: float | None = None,
    about: About = About(),
    comparison: Comparison | None = Comparison(),
) -> ModelCard:
    """Writes `path` and gives the model card that is inside it.

    model: takes float NCHW images, normalised, gives logits or (logits, features). `adjust` is the TOTAL strength of
    the prior correction: the graph applies what training has not absorbed. With `comparison=None` the file is not
    compared with torch; if the comparison fails, it is kept as NAME.failed.onnx and CheckFailed says where the two
    differ.
    """
    path = Path(path)
    classes = checked_names(class_names)
    check_choices(interface.named, interface.ood, knobs)
    check_settings(interface.input, interface.opset, abstain_below)
    prior = deployed_prior(classes, calibrator, train_prior, target_prior, adjust, trained.absorbed, prior_floor)
    taus = trained.class_temperatures
    if taus is not None:
        check_temperatures(np.asarray(taus, np.float64), len(classes))
    network = prepare(model)
    body = Body(network, preprocessing, interface.input).eval()
    features = _probe(body, preprocessing, len(classes))
    if calibrator is not None and calibrator.reads_features and not features:
        raise ModelError(
            f"the calibrator ({calibrator.method}) reads features, and the network gives none",
            fix="let it return (logits, features), or take another calibrator",
        )
    traced = Body(lean(network), preprocessing, interface.input).eval()
    graph = trace(
        traced, preprocessing, opset=interface.opset, outputs=["logits", "features"] if features else ["logits"]
    )
    head, weight, bias, width = _split(graph, len(classes), features)
    card = ModelCard(
        classes=classes,
        preprocessing=preprocessing,
        name=about.name or path.stem,
        input=_INPUTS[interface.input],
        outputs=tuple(o for o in OUTPUTS if o in interface.named),
        class_temperatures=None if taus is None else tuple(map(float, taus)),
        gauge=trained.gauge,
        calibrator=None if calibrator is None else map_alone(calibrator),
        prior=prior,
        knobs=knobs,
        head=head,
        ood=interface.ood,
        abstain_below=abstain_below,
        metrics=dict(about.metrics),
        source=dict(about.source),
        versions=_versions(),
        description=about.description,
        author=about.author,
        licence=about.licence,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    tail = build_tail(card, weight, bias, width, BATCH)
    cut(graph, tail_reads(tail))
    graph.ir_version = IR_VERSION if interface.opset <= 18 else graph.ir_version
    with tempfile.TemporaryDirectory(dir=_folder(path), prefix=".calibrant-export-") as folder:
        draft = Path(folder) / path.name
        save(graph, draft)
        del graph
        card = write_deployed(OnnxFile.open(draft), draft, card, tail)
        if comparison is not None:
            reference = TorchReference(body, len(classes), card, calibrator)
            card = with_golden_rows(draft, _verified(draft, path, card, reference, traced, comparison))
        for data in OnnxFile.open(draft).external_files():
            data.replace(path.parent / data.name)
        draft.replace(path)
    return card


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
        add_features(graph, found, name, batch=BATCH)
    if not features:
        rename(graph, name, "features")
        name, width = "features", found.weight.shape[1]
    return Head(kind="gemm", input=name, feature_dim=width), found.weight, found.bias, width


def _verified(
    draft: Path,
    path: Path,
    card: ModelCard,
    reference: TorchReference,
    traced: Body,
    comparison: Comparison,
) -> ModelCard:
    """Compares the draft with torch and writes the result into its card."""
    from calibrant.export.edit import restamp

    generator = torch.Generator().manual_seed(0)
    random = reference.body.example(card.preprocessing, 16, generator)
    images = {"random": random.numpy()}
    if comparison.images is not None:
        images["real"] = comparison.images
    report = compare(draft, reference, images, tolerance=comparison.tolerance, knobs=knob_defaults(card))
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


def _versions() -> dict[str, str]:
    import timm

    return {
        "calibrant": __version__, "torch": torch.__version__, "onnx": onnx.__version__, "timm": timm.__version__,
        "onnxruntime": runtime().__version__,
    }  # fmt: skip


def _folder(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.parent
