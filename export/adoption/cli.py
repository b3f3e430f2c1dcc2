"""`calibrant adopt`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from calibrant.artifacts.foreign.outcome import OUTCOMES, Outcome
from calibrant.errors import ConfigError
from calibrant.overwrite import OVERWRITE, refuse_to_replace

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("foreign", type=PATH)
@click.option("--out", type=PATH, required=True, help="The .onnx file to write.")
@click.option(
    "--classes",
    type=PATH,
    help="Text file with a class name a line, in the outputs' order, unless the file names them.",
)
@click.option(
    "--preprocess",
    help="A preprocessor_config.json of Hugging Face (hf:FILE), a timm config.json, timm:NAME, or torchvision:NAME "
    "like ResNet50_Weights.IMAGENET1K_V2.  [default: a guess, 0..1]",
)
@click.option(
    "--data", type=PATH, help="Pictures to prove it on; with labels they show accuracy and wrong preprocessing."
)
@click.option("--fix-preprocess", is_flag=True, help="Take the preprocessing that fits labelled --data best.")
@click.option("--mean", help="Of red, green, blue: 0.485,0.456,0.406.")
@click.option("--std", help="Of red, green, blue: 0.229,0.224,0.225.")
@click.option("--scale", help="What mean and std count in, 0-1 or 0-255; alone: no mean and std.")
@click.option("--colour", "--color", "colour", help="Order that the network wants: rgb or bgr.")
@click.option("--size", help="Height and width of its pictures where the graph leaves them open: 224 or 224x192.")
@click.option("--resize", type=click.IntRange(1), help="Shorter side before the crop.")
@click.option("--crop", help="center, or squash: the whole picture, whatever its shape.")
@click.option("--interpolation", help="bilinear, bicubic, nearest, lanczos, box or hamming.")
@click.option("--output", help="Which output to take, where several could be the classes.")
@click.option("--output-kind", help="What it is where structure and numbers disagree: logits, probabilities, ...")
@click.option(
    "--outcome",
    type=click.Choice(OUTCOMES),
    help="independent: several labels a picture.  [default: told from sigmoids]",
)
@click.option("--train-prior", help="Class shares of its training set, for calibrant adjust: 0.2,0.8 or a file.")
@click.option("--name", help="Name of the model in the file.")
@click.option("--description", default="", help="A sentence on the model, for its card.")
@click.option("--author", help="Who made it.")
@click.option("--licence", "--license", "licence", help="SPDX name of the model's licence.")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Everything found and proved as JSON on stdout.")
def adopt(
    foreign: Path,
    out: Path,
    classes: Path | None,
    preprocess: str | None,
    data: Path | None,
    fix_preprocess: bool,
    mean: str | None,
    std: str | None,
    scale: str | None,
    colour: str | None,
    size: str | None,
    resize: int | None,
    crop: str | None,
    interpolation: str | None,
    output: str | None,
    output_kind: str | None,
    outcome: Outcome | None,
    train_prior: str | None,
    name: str | None,
    description: str,
    author: str | None,
    licence: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Take over FOREIGN.onnx, a classifier that another exporter wrote, as a file of Calibrant.

    The network stays as it is; its last layer becomes the part that calibration edits, and pictures go in as bytes.
    Both files are run on the same pictures, and nothing is written unless they agree.

    \b
    calibrant adopt resnet.onnx --classes names.txt --preprocess torchvision:ResNet50_Weights.IMAGENET1K_V2 \\
        --data images/val --out birds.onnx
    """
    from calibrant.export.adoption import adopt as adopting
    from calibrant.export.adoption.preprocess.declared import Flags
    from calibrant.export.adoption.report import lines, to_dict
    from calibrant.priors import read_prior

    if out.suffix != ".onnx":
        raise ConfigError(f'"{out.name}" does not end in .onnx', where="--out")
    refuse_to_replace(out, overwrite=overwrite)
    if fix_preprocess and data is None:
        raise ConfigError("needs labelled pictures", where="--fix-preprocess", fix="give --data DIR")
    names = None if classes is None else adopting.read_names(classes)
    prior = None
    if train_prior is not None:
        if names is None:
            raise ConfigError("needs --classes, whose shares it gives", where="--train-prior")
        prior = read_prior(train_prior, names, where="--train-prior").tolist()
    done = adopting.adopt(
        foreign,
        out,
        classes=names,
        preprocess=preprocess,
        size=_size(size),
        data=data,
        output=output,
        flags=Flags(_three(mean, "--mean"), _three(std, "--std"), scale, colour, resize, crop, interpolation),
        output_kind=output_kind,
        outcome=outcome,
        fix_preprocess=fix_preprocess,
        train_prior=prior,
        name=name,
        description=description,
        author=author,
        licence=licence,
    )
    if as_json:
        click.echo(json.dumps(to_dict(done), indent=2, ensure_ascii=False))
        return
    click.echo("\n".join(lines(done, out)))


def _three(text: str | None, where: str) -> tuple[float, float, float] | None:
    if text is None:
        return None
    try:
        found = [float(v) for v in text.split(",")]
    except ValueError:
        found = []
    if len(found) == 1:
        found *= 3
    if len(found) != 3:
        raise ConfigError(f'"{text}" is not three numbers', where=where, fix="like 0.485,0.456,0.406")
    return found[0], found[1], found[2]


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if not all(p.strip().isdigit() and int(p) > 0 for p in parts) or len(parts) > 2:
        raise ConfigError(f'"{text}" is no size', where="--size", fix="like 224, or 224x192 (height x width)")
    return int(parts[0]), int(parts[-1])
