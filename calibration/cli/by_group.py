"""`calibrant calibrate by-group`: a calibrator for each group of rows, and what it brings beside the common one.

Each row is judged by maps and corrections that were fitted on the other folds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from calibrant.overwrite import OVERWRITE, refuse_to_replace
from calibrant.words import Words

COMMON, INDEX = "common.json", "groups.json"


def _methods() -> tuple[str, ...]:
    from calibrant.calibration.calibrators.by_group import BY_GROUP
    from calibrant.calibration.calibrators.table import FORMS

    known = (m for m, found in FORMS.items() if not found.reads_features)
    return (*(m for m in known if m not in (BY_GROUP.method, "mixture")), "auto")


@click.command("by-group")
@click.argument("predictions", type=click.Path(path_type=Path))
@click.option("--column", metavar="NAME", help="The group column; not needed where the file has one.")
@click.option(
    "--method", type=Words(_methods), default="temperature", show_default=True, help="The map that all groups share."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A folder for the calibrators.")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def by_group_command(
    predictions: Path, column: str | None, method: str, out: Path, overwrite: bool, as_json: bool
) -> None:
    """Fit one common map and a small correction of each group of rows (a site, a camera), shrunken to it.

    A run folder stands for its validation predictions. OUT gets a calibrator for each group, and common.json for rows
    of any other; groups.json says which is whose.

    \b
    Example: calibrant calibrate by-group val.parquet --column site --out calibrators
    """
    from calibrant.atomic import write_json
    from calibrant.calibration.calibrators.by_group import BY_GROUP, fit_corrections, parameters_of
    from calibrant.calibration.calibrators.table import FORMS
    from calibrant.calibration.fitting import judged_fit
    from calibrant.errors import ConfigError
    from calibrant.progress import table

    refuse_to_replace(out, overwrite=overwrite, marker=INDEX)
    z, y, column, groups, folds = _rows(predictions, column)
    if method in FORMS and FORMS[method].reads_features:
        raise ConfigError(f"{method} reads features, which the common map of groups is not given", where="--method")
    common = judged_fit(predictions, method).calibrator
    corrections = fit_corrections(common.logits(z), y, groups)
    held_out = _held_out(method, common, z, y, groups, folds)
    judged = {v: _beside(*(losses[groups == v] for losses in held_out)) for v in corrections.of}
    judged["all rows"] = _beside(*held_out)
    files = _file_names(corrections.of)
    common.save(out / COMMON)
    for value, correction in corrections.of.items():
        parameters = parameters_of(common.method, common.parameters, correction)
        notes = {"column": column, "group": value, "rows": int((groups == value).sum()), **judged[value]}
        made = replace(common, method=BY_GROUP.method, parameters=parameters, fit=notes, metrics={})
        made.save(out / files[value])
    spreads = [{"scale": s, "bias": r, "share": w} for (s, r), w in corrections.shares.items()]
    found = {"column": column, "files": files, "others": COMMON, "judged": judged, "spreads": spreads}
    write_json(out / INDEX, found)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    lines = []
    for value, j in judged.items():
        apart = "" if j["low"] is None else f"{j['low']:+.4f} .. {j['high']:+.4f}"
        rows = len(y) if value == "all rows" else int((groups == value).sum())
        lines.append((value, f"{rows:,}", f"{j['common']:.4f}", f"{j['own']:.4f}", f"{j['difference']:+.4f}", apart))
    click.echo(table((column, "rows", "common NLL", "own NLL", "difference", "95 % interval"), lines))
    click.echo("Cross-fitted: each row judged by maps fitted on other rows.")
    none = corrections.shares[0.0, 0.0]
    click.echo(f"That the groups need nothing of their own is believed to {100 * none:.0f} %.")
    click.echo(f"Wrote {len(files)} calibrators and {COMMON} to {out}")


Rows = tuple[NDArray[Any], NDArray[np.int64], str, NDArray[Any], NDArray[np.intp]]


def _rows(path: Path, column: str | None) -> Rows:
    from calibrant.artifacts.predictions import FOLD, PredictionsFile
    from calibrant.calibration.cross_fit import drawn_folds, own_folds
    from calibrant.calibration.fitting import validation_file
    from calibrant.calibration.formula import Formula
    from calibrant.calibration.statistics.sidecar import refuse_weights
    from calibrant.errors import ConfigError, DataError, did_you_mean

    path = validation_file(path)
    file = PredictionsFile.open(path)
    data = file.read().labelled()
    if len(data) == 0:
        raise DataError("no row has a label", where=path, fix="calibration needs labelled predictions")
    refuse_weights(data, path)
    if Formula.of(None, file.source).shift() is not None:
        raise ConfigError(
            "the model comes with a prior correction, which corrections by group know nothing of",
            where=path,
            fix="calibrate all rows together",
        )
    names = [name for name in data.groups if name != FOLD]
    if not names:
        raise DataError("has no group column", where=path, fix="add a column `group` or `group_NAME` of text")
    if column is None and len(names) > 1:
        raise ConfigError(f"has several group columns: {', '.join(names)}", where=path, fix="name one with --column")
    name = names[0] if column is None else column.removeprefix("group_")
    if name not in names:
        raise ConfigError(f'no group column "{column}"', where=path, fix=did_you_mean(name, names))
    groups = np.array(["" if v is None else str(v) for v in data.groups[name]])
    folds = own_folds(data)
    return data.logits, data.labels, name, groups, drawn_folds(len(data)) if folds is None else folds


def _held_out(
    method: str, chosen: Any, z: NDArray[Any], y: NDArray[np.int64], groups: NDArray[Any], folds: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Loss of each row under the common map, and with its group's correction."""
    from functools import partial

    from calibrant.calibration.calibrators import fit
    from calibrant.calibration.calibrators.auto import again
    from calibrant.calibration.calibrators.by_group import fit_corrections
    from calibrant.calibration.calibrators.estimation.pooling import label_losses

    made = partial(again, fit, chosen) if method == "auto" else partial(fit, method)
    common, own = np.empty(len(y)), np.empty(len(y))
    for f in np.unique(folds):
        test, train = folds == f, folds != f
        found = made(z[train], y[train], weights=None)
        corrections = fit_corrections(found.logits(z[train]), y[train], groups[train])
        zeta = found.logits(z[test])
        common[test] = label_losses(zeta, y[test])
        own[test] = label_losses(corrections.logits(zeta, groups[test]), y[test])
    return common, own


def _beside(common: NDArray[np.float64], own: NDArray[np.float64]) -> dict[str, float | None]:
    from calibrant.calibration.intervals.means import mean_interval

    away, n = own - common, len(own)
    low, high = mean_interval(float(away.mean()), float(away.var(ddof=1)) if n > 1 else 0.0, float(n))
    return {
        "common": float(common.mean()), "own": float(own.mean()), "difference": float(away.mean()),
        "low": low, "high": high,
    }  # fmt: skip


def _file_names(groups: Mapping[str, Any]) -> dict[str, str]:
    """A name for each group that any file system takes, none twice and none of the other files'."""
    taken, found = {COMMON, INDEX}, {}
    for value in groups:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", value).strip("._") or "group"
        name, n = f"{stem}.json", 2
        while name.lower() in taken:
            name, n = f"{stem}-{n}.json", n + 1
        taken.add(name.lower())
        found[value] = name
    return found
