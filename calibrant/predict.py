"""`calibrant predict`: one command for a training run (torch) and for a deployed file (onnxruntime).

A composition root: it calls into the stage that fits and knows nothing itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from calibrant.errors import FormatError


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), help="Folder of images, with or without class folders."
)
@click.option("--out", type=click.Path(path_type=Path), help="Predictions file.  [default: predictions.parquet]")
@click.option(
    "--split",
    default="test",
    show_default=True,
    help="Sub-folder to read where the data has splits, and the name written.",
)
@click.option("--batch-size", default=64, show_default=True, type=click.IntRange(1), help="Images per forward pass.")
@click.option("--features", is_flag=True, help="Also write the features before the classifier.")
@click.option(
    "--on-bad-image",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="Stop at an unreadable image, or leave it out and list it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def predict(
    model: Path,
    data: Path,
    out: Path | None,
    split: str,
    batch_size: int,
    features: bool,
    on_bad_image: str,
    as_json: bool,
) -> None:
    """Write the predictions of MODEL for a folder of images.

    MODEL is a run folder of `calibrant train` or a deployed .onnx file. The file holds the model's own logits, so that
    calibrators can be fitted on it; labels come from class folders and are empty where there are none.

    \b
    Examples:
      calibrant predict runs/first --data images --out test.parquet
      calibrant predict model.onnx --data images/test --out served.parquet
    """  # fmt: skip
    out = out or Path("predictions.parquet")
    if model.is_dir():
        from calibrant.train.predict import predict_run as run_predictions
    elif model.suffix == ".onnx" or not model.exists():
        from calibrant.serve.offline import predict_model as run_predictions
    else:
        raise FormatError("is neither a run folder nor an .onnx file", where=model)
    written = run_predictions(
        model, data, out, split=split, batch_size=batch_size, features=features, on_bad_image=on_bad_image
    )
    click.echo(json.dumps({"predictions": str(written)}) if as_json else f"Wrote {written}")
