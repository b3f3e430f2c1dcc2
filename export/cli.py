"""`calibrant export` and `calibrant verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from calibrant.command_group import DefaultCommandGroup
from calibrant.errors import CheckFailed, ConfigError
from calibrant.overwrite import OVERWRITE, refuse_to_replace
from calibrant.words import Words

PATH = click.Path(path_type=Path)
_METHODS = Words(lambda: ("auto", "static", "dynamic", "fp16"))
_RANGES = Words(lambda: ("minmax", "percentile", "entropy"))
_KNOBS = Words(lambda: ("baked", "runtime", "required"))
_INPUTS = Words(lambda: ("uint8", "float32"))
_SCORES = Words(lambda: ("energy", "max-softmax", "feature-norm", "none"))


@click.group(cls=DefaultCommandGroup, default_command="run", context_settings={"help_option_names": ["-h", "--help"]})
def export() -> None:
    """Write one ONNX file with the calibration inside.

    \b
    calibrant export runs/birds --calibrator calibrator.json --adjust 1 --out birds.onnx
    """


@export.command("run")
@click.argument("run", type=PATH)
@click.option("--out", type=PATH, required=True, help="The .onnx file to write.")
@click.option("--config", type=PATH, help="TOML file; its table [export] has keys with the names of these options.")
@click.option("--calibrator", type=PATH, help="A calibrator.json fitted on this run's predictions.")
@click.option("--adjust", type=float, help="TOTAL strength of the prior correction; 1 is Bayes' rule. Default: none.")
@click.option("--target-prior", help='"uniform" (the default when adjusting), shares like 0.2,0.8, or a .json file.')
@click.option("--prior-floor", type=float, help="Raise smaller shares of the priors to this, for classes never seen.")
@click.option(
    "--knobs", type=_KNOBS, help="baked (folded into the weights), runtime (inputs with defaults) or required (inputs)."
)
@click.option(
    "--input", "input", type=_INPUTS, help="uint8 (NHWC, normalised in the graph) or float32 (NCHW, normalised by you)."
)
@click.option(
    "--head-only", is_flag=True, default=None, help="Of a run of calibrant head: without its backbone, on feature rows."
)
@click.option("--features/--no-features", default=None, help="Also put out the feature vector.")
@click.option("--ood", type=_SCORES, help="Add an out-of-distribution score: energy, max-softmax or feature-norm.")
@click.option("--opset", type=int, help="ONNX opset, 18 unless given.")
@click.option("--abstain-below", type=float, help="Confidence under which a server answers that it does not know.")
@click.option("--name", help="Name of the model in the file.")
@click.option("--description", help="A sentence on the model, for its card.")
@click.option("--author", help="Who made it.")
@click.option("--licence", "--license", "licence", help="SPDX name of the model's licence.")
@click.option("--images", type=PATH, help="Folder of real images for the comparison with torch.")
@click.option("--verify/--no-verify", default=None, help="Compare with torch before the file appears (default).")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="The model card as JSON on stdout.")
def export_command(run: Path, out: Path, config: Path | None, overwrite: bool, as_json: bool, **options: Any) -> None:
    """Write RUN, a folder made by `calibrant train`, as one ONNX file.

    \b
    calibrant export runs/birds --calibrator calibrator.json --adjust 1 --out birds.onnx
    """
    from calibrant.config import build, read_toml
    from calibrant.export.checks.card_text import summary
    from calibrant.export.config import ExportConfig
    from calibrant.export.run import export_run

    settings = {} if config is None else read_toml(config).get("export", {})
    settings.update({k: v for k, v in options.items() if v is not None})
    where = "calibrant export" if config is None else f"{config} [export]"
    _check_out(out)
    refuse_to_replace(out, overwrite=overwrite)
    card = export_run(run, out, build(ExportConfig, settings, where=where))
    click.echo(json.dumps(card.to_dict(), indent=2, ensure_ascii=False) if as_json else summary(card, out))


@click.command()
@click.argument("model", type=PATH)
@click.option("--run", type=PATH, help="The run folder that it came from (default: as named in the file).")
@click.option("--against", type=PATH, help="The file that it was adopted from, or with --reseal what it was before.")
@click.option("--images", type=PATH, help="Folder of real images to compare on. Default: the run's own data.")
@click.option("--predictions", type=PATH, help="Predictions whose NLL and ECE must come out. Default: the run's own.")
@click.option("--reseal", is_flag=True, help="Let a file that another tool changed be edited again, if it is equal.")
@click.option("--out", type=PATH, help="With --reseal: write here instead of changing MODEL.onnx in place.")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
def verify(
    model: Path,
    run: Path | None,
    against: Path | None,
    images: Path | None,
    predictions: Path | None,
    reseal: bool,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Compare MODEL.onnx with what it came from: a run at every optimisation level, or the file it was adopted from.

    \b
    calibrant verify birds.onnx --run runs/birds --images data/birds/test
    calibrant verify adopted.onnx --against resnet.onnx
    calibrant verify slimmed.onnx --reseal --against birds.onnx
    """
    from calibrant.artifacts.onnx_file import OnnxFile

    refuse_to_replace(out, overwrite=overwrite)
    if reseal:
        _reseal(model, against, images, out, as_json)
        return
    if out is not None:
        raise ConfigError("is for --reseal", where="--out", fix="leave it out: nothing is written")
    if OnnxFile.open(model).card().adopted is not None:
        from calibrant.export.adoption.again import verify_adopted

        report, lines = verify_adopted(model, against, images)
        other = "the file that it was adopted from"
    else:
        from calibrant.export.checks.verify import verify_file

        if against is not None:
            raise ConfigError("is for adopted files and --reseal", where="--against", fix="give --run FOLDER")
        report, lines = verify_file(model, run, images, predictions)
        other = "torch"
    click.echo(json.dumps(report, indent=2) if as_json else "\n".join(lines))
    if not report["passed"]:
        raise CheckFailed(f"does not agree with {other}: {report['failure']}", where=model)


def _reseal(model: Path, against: Path | None, images: Path | None, out: Path | None, as_json: bool) -> None:
    from calibrant.export.checks.reseal import reseal

    if against is None:
        raise ConfigError("needs the file as it was before", where="--reseal", fix="give --against BEFORE.onnx")
    done = reseal(model, against, out, images)
    if as_json:
        click.echo(json.dumps(done.proof.to_dict(), indent=2))
        return
    click.echo(f"{done.proof.line}\n{out or model}: answers as {against.name} does, and can be edited again")


def _check_out(out: Path) -> None:
    if out.suffix != ".onnx":
        raise ConfigError(f'"{out.name}" does not end in .onnx', where="--out")
    if out.is_dir():
        raise ConfigError("is a folder", where=f"--out {out}")


@export.command("triton")
@click.argument("model", type=PATH)
@click.argument("repository", type=PATH)
@click.option("--name", help="Name of the model in Triton. Default: the name in the file.")
@click.option("--max-batch", type=int, default=32, show_default=True)
@click.option("--queue-delay-us", type=int, default=0, show_default=True, help="Wait for a fuller batch, microseconds.")
@click.option(
    "--queue-timeout-us", type=int, default=30_000_000, show_default=True, help="Refuse what waits longer; 0: never."
)
@click.option("--queue-size", type=int, default=0, show_default=True, help="Requests that may wait; 0: any number.")
@click.option("--instances", type=int, default=1, show_default=True)
@click.option("--device", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True)
@click.option("--threads", type=int, help="Threads of onnxruntime per instance.")
@click.option("--cache", is_flag=True, help="Allow Triton's response cache for this model.")
@click.option("--no-warmup", is_flag=True, help="Leave the warm-up requests out.")
@click.option("--ensemble", is_flag=True, help="Add a step that takes JPEG or PNG files (Python backend, Pillow).")
@click.option("--kserve", type=PATH, help="Also write a KServe InferenceService here.")
@click.option("--storage-uri", help="Where KServe finds the repository, e.g. s3://models/birds.")
def triton(
    model: Path, repository: Path, no_warmup: bool, kserve: Path | None, storage_uri: str | None, **options: Any
) -> None:
    """Write MODEL.onnx as a folder of a Triton model REPOSITORY.

    \b
    calibrant export triton birds.onnx repository/ --max-batch 32
    """
    from calibrant.atomic import write_text
    from calibrant.export.triton.repository import TritonConfig, export_triton, kserve_manifest

    if (kserve is None) != (storage_uri is None):
        raise ConfigError("--kserve and --storage-uri go together", fix="give both or none")
    folder = export_triton(model, repository, TritonConfig(warmup=not no_warmup, **options))
    click.echo(f"Wrote {folder}")
    if kserve is not None and storage_uri is not None:
        write_text(kserve, kserve_manifest(folder.name, storage_uri, gpu=options["device"] == "gpu"))
        click.echo(f"Wrote {kserve}")


@export.command("web")
@click.argument("model", type=PATH)
@click.argument("site", type=PATH)
@click.option("--name", help="What the page and its icon are called. Default: the name in the file.")
@click.option("--runtime", type=PATH, help="Folder with node_modules/onnxruntime-web. Default: fetched once with npm.")
@click.option("--overwrite", is_flag=True, envvar="CALIBRANT_OVERWRITE", help="Replace the site that is in SITE.")
@click.option("--json", "as_json", is_flag=True, help="What was written as JSON on stdout.")
def web(model: Path, site: Path, name: str | None, runtime: Path | None, overwrite: bool, as_json: bool) -> None:
    """Write MODEL.onnx as a static folder SITE that answers in a browser or on a phone, also without a network.

    \b
    calibrant export web birds.onnx site/
    python -m http.server --directory site/
    """
    from calibrant.export.web.site import export_web

    done = export_web(model, site, runtime=runtime, name=name, overwrite=overwrite)
    if as_json:
        click.echo(json.dumps(done.to_dict(), indent=2))
        return
    sizes = (done.bytes, done.model_bytes, done.runtime_bytes, done.page_bytes)
    whole, model_, runtime_, page = (f"{size / 1e6:.1f}" for size in sizes)
    parts = f"model {model_}, onnxruntime-web {done.runtime_version} {runtime_}, page {page}"
    click.echo(f"Wrote {site}: {whole} MB ({parts}), loaded once a device")
    for note in done.notes:
        click.echo(f"note: {note}")
    click.echo(f"Try it: python -m http.server --directory {site}, then http://localhost:8000")
    click.echo("For phones put the folder on any host with https: without it browsers keep nothing for offline use")


@click.command()
@click.argument("model", type=PATH)
@click.option("--out", type=PATH, required=True, help="The .onnx file to write.")
@click.option(
    "--data",
    type=PATH,
    required=True,
    help="Held-out labelled images, any layout (val, or test), for the table.",
)
@click.option("--calibration", type=PATH, help="Images for the ranges, labels not needed. Default: some of --data.")
@click.option("--samples", type=int, default=512, show_default=True, help="Images for ranges and corrections.")
@click.option(
    "--method",
    type=_METHODS,
    default="auto",
    show_default=True,
    help="static (CNN), dynamic (transformer), fp16 (GPU).",
)
@click.option("--ranges", type=_RANGES, default="minmax", show_default=True, help="minmax, percentile or entropy.")
@click.option(
    "--keep-float", help='Blocks that stay float, "a,b", or "none". Default: those that measure as sensitive.'
)
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Everything measured as JSON on stdout.")
def quantize(
    model: Path,
    out: Path,
    data: Path,
    calibration: Path | None,
    samples: int,
    method: str,
    ranges: str,
    keep_float: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a smaller, faster MODEL.onnx; re-fit its temperature and show what every setting costs.

    \b
    calibrant quantize birds.onnx --data birds/val --calibration birds/train --out birds-int8.onnx
    """
    from calibrant.export.quantization.quantize import quantize_folders
    from calibrant.export.quantization.report import lines

    _check_out(out)
    refuse_to_replace(out, overwrite=overwrite)
    keep = None if keep_float is None else [b.strip() for b in keep_float.split(",") if b.strip() not in ("", "none")]
    result = quantize_folders(
        model, out, data, calibration, samples=samples, method=method, ranges=ranges, keep_float=keep
    )
    click.echo(json.dumps(result.to_dict(), indent=2) if as_json else "\n".join(lines(result, out)))
