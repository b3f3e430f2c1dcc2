"""`calibrant import`: predictions that somebody else wrote, as one of our files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibrant.artifacts.foreign.kinds import KINDS, Kind
from calibrant.artifacts.foreign.outcome import OUTCOMES, Outcome
from calibrant.errors import DataError
from calibrant.overwrite import OVERWRITE, refuse_to_replace

if TYPE_CHECKING:
    from calibrant.artifacts.foreign.read import Foreign

_PATH = click.Path(path_type=Path)


@click.command("import")
@click.argument("foreign", nargs=-1, required=True, type=_PATH)
@click.option("--out", type=_PATH, required=True, help="The predictions file to write (.parquet).")
@click.option("--kind", type=click.Choice(KINDS), help="What the scores are, where it is unclear.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="independent: sigmoid, several labels a row.")
@click.option("--classes", type=_PATH, help="Class names in the order of the columns: a text file, one a line.")
@click.option("--train-prior", metavar="PRIOR", help="Class shares in training: uniform, 0.2,0.8, a file, ...")
@click.option("--scores", multiple=True, metavar="COLUMN", help="Columns of scores; * stands for anything.")
@click.option("--label", metavar="COLUMN", help="Column of labels.")
@click.option("--id", "id_", metavar="COLUMN", help="Column that names the rows.")
@click.option("--weight", metavar="COLUMN", help="Column of weights.")
@click.option("--group", "groups", multiple=True, metavar="COLUMN", help="Column by which rows belong together.")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_predictions(
    foreign: tuple[Path, ...],
    out: Path,
    kind: Kind | None,
    outcome: Outcome | None,
    classes: Path | None,
    train_prior: str | None,
    scores: tuple[str, ...],
    label: str | None,
    id_: str | None,
    weight: str | None,
    groups: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read FOREIGN predictions and write them as a predictions file, saying what they were taken for.

    npz, npy (several files hold a column each), CSV, TSV, Parquet, JSON lines, .pt. `evaluate` and `calibrate` read
    these as well; import when columns must be named, or to keep one file.

    \b
    Examples:
      calibrant import logits.npy labels.npy --classes names.txt --out preds.parquet
      calibrant import table.csv --scores 'p_*' --label truth --group patient --out preds.parquet
    """
    from calibrant.artifacts.foreign.read import Asked, read_foreign
    from calibrant.artifacts.foreign.roles import Named
    from calibrant.artifacts.predictions import is_own
    from calibrant.priors import read_prior

    refuse_to_replace(out, overwrite=overwrite)
    own = next((path for path in foreign if path.is_file() and is_own(path)), None)
    if own is not None:
        raise DataError("is a predictions file of Calibrant already", where=own, fix="use it as it is")
    asked = Asked(kind, outcome, Named(scores, label, id_, weight, groups), _names(classes))
    found = read_foreign(*foreign, asked=asked)
    if train_prior is not None:
        from dataclasses import replace

        shares = tuple(read_prior(train_prior, found.predictions.class_names).tolist())
        source = replace(found.predictions.source, train_prior=shares)
        found = replace(found, predictions=replace(found.predictions, source=source))
    found.predictions.write(out)
    click.echo(json.dumps(_account(found, out)) if as_json else _text(found, out))


def _names(path: Path | None) -> tuple[str, ...] | None:
    if path is None:
        return None
    from calibrant.artifacts.class_names import read_class_names

    return read_class_names(path)


def _account(found: Foreign, out: Path) -> dict[str, object]:
    data = found.predictions
    return {
        "out": str(out), "rows": len(data), "labelled": len(data.labelled()), "classes": len(data.class_names),
        "class_names": list(data.class_names), "kind": found.kind, "outcome": data.source.outcome,
        "files": [p.name for p in found.files], "notes": list(found.notes),
    }  # fmt: skip


def _text(found: Foreign, out: Path) -> str:
    data = found.predictions
    names = data.class_names
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    what = "labels, independent" if data.source.independent else "classes"
    lines = [
        f"{len(data):,} rows, {len(data.labelled()):,} with a label; {len(names)} {what}: {shown}",
        f"The scores are {found.kind}" + (", kept as logits." if found.kind != "logits" else "."),
        *(f"Note: {note}" for note in found.notes),
    ]
    if len(found.files) > 1:
        lines.append("Read: " + ", ".join(p.name for p in found.files))
    return "\n".join([*lines, f"Wrote {out}"])
