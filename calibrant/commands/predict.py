"""`calibrant predict`: one command for a training run (torch) and for a deployed file (onnxruntime).

A composition root: it calls into the stage that fits and knows nothing itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from calibrant.errors import ConfigError, FormatError
from calibrant.overwrite import OVERWRITE, refuse_to_replace
from calibrant.remote.ray_session import RAY_ADDRESS, joined
from calibrant.remote.storage import PathOrAddress, here, is_address, outgoing


@click.command()
@click.argument("model", type=PathOrAddress())
@click.option(
    "--data",
    required=True,
    type=PathOrAddress(),
    help="Images in any layout that training reads: folders, a CSV list, shards, benchmarks; labels or none. "
    "s3://... and other addresses of object storage are copied here.",
)
@click.option(
    "--out", type=PathOrAddress(), help="Predictions file, here or in object storage.  [default: predictions.parquet]"
)
@click.option(
    "--split",
    default="test",
    show_default=True,
    help="Split to read where the data have splits, and the name written.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help="Images per forward pass.  [default: 64 for a run, measured for a file]",
)
@click.option(
    "--views",
    type=click.Choice(["one", "flip", "ten-crop"]),
    default="one",
    show_default=True,
    help="Average over views of each image (runs only).",
)
@click.option("--features", is_flag=True, help="Also write the features before the classifier.")
@click.option(
    "--on-bad-image",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="Stop at an unreadable image, or leave it out and list it.",
)
@click.option(
    "--engine",
    type=click.Choice(["calibrant", "ray"]),
    default="calibrant",
    show_default=True,
    help="This process, or actors of Ray on one machine or many (files only).",
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes, as actors of Ray.  [default: one per four cores]"
)
@RAY_ADDRESS
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def predict(
    model: Path | str,
    data: Path | str,
    out: Path | str | None,
    split: str,
    batch_size: int | None,
    views: str,
    features: bool,
    on_bad_image: str,
    engine: str,
    workers: int | None,
    ray_address: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the predictions of MODEL for images.

    MODEL is a run folder of `calibrant train` or a deployed .onnx file. The file holds the model's own logits, so that
    calibrators can be fitted on it. Labels are empty where there are none, or none that the model knows; the column
    label_name then says what they are.

    \b
    Examples:
      calibrant predict runs/first --data images --out test.parquet
      calibrant predict model.onnx --data images/test --out served.parquet
      calibrant predict model.onnx --data shards --split val
      calibrant predict model.onnx --data shards --engine ray --workers 4
      calibrant predict model.onnx --data s3://birds/june --out s3://birds/june.parquet
    """
    out = out or Path("predictions.parquet")
    if engine != "ray":  # which goes on where it was stopped
        refuse_to_replace(out, overwrite=overwrite)
    run = not is_address(model) and Path(model).is_dir()
    if engine == "ray" and run:
        raise ConfigError("--engine ray needs a deployed file", where=model, fix="make one with calibrant export")
    if workers is not None and engine != "ray":
        raise ConfigError("is for --engine ray", where="--workers", fix="leave it out: all cores are used as it is")
    on_bad: Literal["fail", "skip"] = "skip" if on_bad_image == "skip" else "fail"
    with joined(ray_address, engine=engine), outgoing(out) as written:
        if run:
            from calibrant.train.predict import predict_run

            predict_run(
                Path(model),
                here(data),
                written,
                split=split,
                batch_size=batch_size or 64,
                features=features,
                on_bad_image=on_bad,
                views="ten-crop" if views == "ten-crop" else "flip" if views == "flip" else "one",
            )
        elif str(model).endswith(".onnx") or not Path(model).exists():
            if views != "one":
                raise ConfigError(
                    f"--views {views} needs a run folder", where=model, fix="a deployed file sees one view"
                )
            from calibrant.serve.batch.predict import predict_model

            predict_model(
                model,
                data,
                written,
                split=split,
                batch_size=batch_size,
                features=features,
                on_bad_image=on_bad,
                engine="ray" if engine == "ray" else "calibrant",
                actors=workers,
            )
        else:
            raise FormatError("is neither a run folder nor an .onnx file", where=model)
        listing = written.with_name(written.name + ".bad-images.txt")
        bad = len(listing.read_text().splitlines()) if on_bad == "skip" and listing.is_file() else 0
    if as_json:
        click.echo(json.dumps({"predictions": str(out), "bad_images": bad}))
        return
    click.echo(f"Wrote {out}")
    if bad:
        click.echo(f"{bad} images could not be read and were left out; {out}.bad-images.txt lists them")
