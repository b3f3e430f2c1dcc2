"""`calibrant export` and `calibrant verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from calibrant.cli import DefaultCommandGroup
from calibrant.errors import CheckFailed, ConfigError

PATH = click.Path(path_type=Path)


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
@click.option("--knobs", help="baked (folded into the weights), runtime (inputs with defaults) or required (inputs).")
@click.option("--input", "input", help="uint8 (NHWC, normalised in the graph) or float32 (NCHW, normalised by you).")
@click.option("--features/--no-features", default=None, help="Also put out the feature vector.")
@click.option("--ood", help="Add an out-of-distribution score: energy, max-softmax or feature-norm.")
@click.option("--opset", type=int, help="ONNX opset, 18 unless given.")
@click.option("--abstain-below", type=float, help="Confidence under which a server answers that it does not know.")
@click.option("--name", help="Name of the model in the file.")
@click.option("--description", help="A sentence on the model, for its card.")
@click.option("--author", help="Who made it.")
@click.option("--licence", "--license", "licence", help="SPDX name of the model's licence.")
@click.option("--images", type=PATH, help="Folder of real images for the comparison with torch.")
@click.option("--verify/--no-verify", default=None, help="Compare with torch before the file appears (default).")
@click.option("--json", "as_json", is_flag=True, help="The model card as JSON on stdout.")
def export_command(run: Path, out: Path, config: Path | None, as_json: bool, **options: Any) -> None:
    """Write RUN, a folder made by `calibrant train`, as one ONNX file.

    \b
    calibrant export runs/birds --calibrator calibrator.json --adjust 1 --out birds.onnx
    """
    from calibrant.config import build, read_toml
    from calibrant.export.card_text import summary
    from calibrant.export.config import ExportConfig
    from calibrant.export.run import export_run

    settings = {} if config is None else read_toml(config).get("export", {})
    settings.update({k: v for k, v in options.items() if v is not None})
    where = "calibrant export" if config is None else f"{config} [export]"
    _check_out(out)
    card = export_run(run, out, build(ExportConfig, settings, where=where))
    click.echo(json.dumps(card.to_dict(), indent=2, ensure_ascii=False) if as_json else summary(card, out))


@click.command()
@click.argument("model", type=PATH)
@click.option("--run", type=PATH, help="The run folder that it came from (default: as named in the file).")
@click.option("--images", type=PATH, help="Folder of real images to compare on.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on stdout.")
def verify(model: Path, run: Path | None, images: Path | None, as_json: bool) -> None:
    """Compare MODEL.onnx with the run that it came from: every optimisation level, 1 and 2 threads.

    \b
    calibrant verify birds.onnx --run runs/birds --images data/birds/test
    """
    from calibrant.export.verify import verify_file

    report, lines = verify_file(model, run, images)
    click.echo(json.dumps(report, indent=2) if as_json else "\n".join(lines))
    if not report["passed"]:
        raise CheckFailed(f"does not agree with torch: {report['failure']}", where=model)


def _check_out(out: Path) -> None:
    if out.suffix != ".onnx":
        raise ConfigError(f'"{out.name}" does not end in .onnx', where="--out")
    if out.is_dir():
        raise ConfigError("is a folder", where=f"--out {out}")
