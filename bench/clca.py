"""Cost of token-reduced ViTs in onnxruntime: MACs, measured time, and speed-up over the unreduced plain export.

    python bench/clca.py                                        EViT at four keep rates, base and CLCA, batch 1
    python bench/clca.py --methods all --keep 0.25 --json out.json --csv out.csv
    python bench/clca.py --model vit_base_patch16_224 --size 448 --keep 0.25
    python bench/clca.py --int8 --batch 1 8
    python bench/clca.py --accuracy evit/0.25/base=run1/predictions.parquet --plot cost.png

Time is CPU time of one onnxruntime thread; all graphs take turns, the best round of each counts, and every ratio comes
from one run. The reference is timm's network through torch.onnx.export as it is, without any of our rewriting.
Weights are random: they change neither the counts nor the time.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import timm
import torch
from torch import nn

from calibrant.train.vit import METHODS, reduce_tokens
from calibrant.train.vit.deploy import for_export
from calibrant.train.vit.macs import count_macs


@dataclass(frozen=True)
class Variant:
    """One graph to time."""

    method: str
    keep_rate: float
    clca: bool
    form: str  # "plain export", "portable", "fused", each possibly with " int8"

    @property
    def name(self) -> str:
        """As `--accuracy` calls it."""
        return f"{self.method}/{self.keep_rate:g}/{'clca' if self.clca else 'base'}"


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    name: str
    form: str
    batch: int
    gmacs: float
    macs_ratio: float
    milliseconds: float
    speedup: float
    accuracy: float | None


def main() -> None:
    """Export, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="vit_small_patch16_224")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--methods", nargs="+", default=["evit"], help='names, or "all"')
    parser.add_argument("--keep", nargs="+", type=float, default=[0.7, 0.5, 0.25, 0.1])
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument("--attention", nargs="+", default=["portable"], choices=["portable", "fused"])
    parser.add_argument("--no-clca", action="store_true", help="leave out the CLCA variants")
    parser.add_argument("--int8", action="store_true", help="add a dynamically quantized graph of each reduction")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--accuracy", nargs="*", default=[], metavar="NAME=FILE", help="predictions, as evit/0.25/base=F"
    )
    parser.add_argument("--plot", type=Path, help="accuracy against cost; needs --accuracy")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    accuracies = dict(read_accuracy(entry) for entry in options.accuracy)
    with TemporaryDirectory() as folder:
        graphs = {v: build(v, options, Path(folder)) for v in variants(options)}
        results = [r for batch in options.batch for r in measure(graphs, batch, options, accuracies)]
    report(results)
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(results[0])))
            writer.writeheader()
            writer.writerows(asdict(r) for r in results)
    if options.plot:
        plot(results, options.plot)


def variants(options: argparse.Namespace) -> list[Variant]:
    """The reference first, then our form of the unreduced network, then the reductions."""
    methods = [m for m in METHODS if m != "none"] if options.methods == ["all"] else options.methods
    out = [Variant("none", 1.0, False, "plain export")]
    for form in options.attention:
        out.append(Variant("none", 1.0, False, form))
        for method in methods:
            for rate in options.keep:
                for clca in (False, True)[: 1 if options.no_clca else 2]:
                    out.append(Variant(method, rate, clca, form))
                    if options.int8:
                        out.append(Variant(method, rate, clca, f"{form} int8"))
    return out


def build(variant: Variant, options: argparse.Namespace, folder: Path) -> tuple[Path, int]:
    """The file of a variant and its multiply-accumulates."""
    torch.manual_seed(0)
    network = timm.create_model(options.model, num_classes=200, img_size=options.size)
    path = folder / f"{variant.name.replace('/', '_')}_{variant.form.replace(' ', '_')}.onnx"
    if variant.form == "plain export":
        export(network, options.size, path)
        return path, count_macs(network).total
    model = reduce_tokens(
        network, variant.method, keep_rate=variant.keep_rate, cla=variant.clca, cache_tokens=int(variant.clca)
    )
    form = variant.form.split()[0]
    export(for_export(model, attention="fused" if form == "fused" else "portable"), options.size, path)
    if variant.form.endswith("int8"):
        quantize(path)
    return path, count_macs(model).total


def export(model: nn.Module, size: int, path: Path) -> None:
    """torch.onnx.export with a dynamic batch."""
    program = torch.onnx.export(
        model.eval(),
        (torch.zeros(2, 3, size, size),),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("N")},),
        input_names=["images"],
        opset_version=18,
        verbose=False,
    )
    if program is None:
        raise RuntimeError("the exporter gave no program")
    program.save(str(path))


def quantize(path: Path) -> None:
    """Dynamic int8 in place: weights per channel, activations at run time, the classifier left in float."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    del model.graph.value_info[:]  # left-over shapes stop the quantizer
    classifier = [n.name for n in model.graph.node if n.op_type == "Gemm"][-1:]
    onnx.save(model, path)
    quantize_dynamic(
        path,
        path,
        per_channel=True,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=classifier,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )


def session(path: Path) -> onnxruntime.InferenceSession:
    """One thread, no spinning."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])


@contextmanager
def cpu_clock() -> Iterator[list[float]]:
    """Appends the CPU seconds of the block."""
    out: list[float] = []
    start = time.process_time()
    yield out
    out.append(time.process_time() - start)


def measure(
    graphs: dict[Variant, tuple[Path, int]], batch: int, options: argparse.Namespace, accuracies: dict[str, float]
) -> list[Result]:
    """All graphs in turns; the best round of each."""
    sessions = {v: session(path) for v, (path, _) in graphs.items()}
    images = np.random.default_rng(0).standard_normal((batch, 3, options.size, options.size)).astype(np.float32)
    best = dict.fromkeys(graphs, float("inf"))
    for turn in range(options.rounds + 1):
        for variant, s in sessions.items():
            with cpu_clock() as seconds:
                s.run(None, {"images": images})
            if turn > 0:
                best[variant] = min(best[variant], seconds[0])
    reference = next(iter(graphs))
    return [
        Result(
            v.name,
            v.form,
            batch,
            macs / 1e9,
            macs / graphs[reference][1],
            best[v] * 1e3,
            best[reference] / best[v],
            accuracies.get(v.name),
        )
        for v, (_, macs) in graphs.items()
    ]


def read_accuracy(entry: str) -> tuple[str, float]:
    """NAME=FILE to name and top-1 accuracy of the labelled rows of a predictions file."""
    from calibrant.artifacts.predictions import read_predictions

    name, _, file = entry.partition("=")
    known = read_predictions(file).labelled()
    return name, float((known.logits.argmax(1) == known.labels).mean())


def report(results: list[Result]) -> None:
    """Print the table."""
    print(f"{'variant':24}{'form':16}{'batch':>6}{'GMACs':>9}{'ratio':>7}{'ms':>9}{'speed-up':>10}{'accuracy':>10}")
    for r in results:
        accuracy = "" if r.accuracy is None else f"{100 * r.accuracy:.1f} %"
        print(
            f"{r.name:24}{r.form:16}{r.batch:6}{r.gmacs:9.3f}{r.macs_ratio:7.3f}{r.milliseconds:9.2f}"
            f"{r.speedup:10.2f}{accuracy:>10}"
        )


def plot(results: list[Result], path: Path) -> None:
    """Accuracy against MACs and against time, where accuracies were given."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    known = [r for r in results if r.accuracy is not None and not r.form.endswith("int8")]
    if not known:
        raise SystemExit("--plot needs --accuracy NAME=FILE for at least one variant")
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, label in zip(axes, ("GMACs", "CPU milliseconds, one thread"), strict=True):
        for r in known:
            x = r.gmacs if label == "GMACs" else r.milliseconds / r.batch
            axis.plot(x, 100 * (r.accuracy or 0.0), "o" if r.name.endswith("clca") else "x", color="tab:blue")
            axis.annotate(r.name, (x, 100 * (r.accuracy or 0.0)), fontsize=7, textcoords="offset points", xytext=(4, 3))
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy in %")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
