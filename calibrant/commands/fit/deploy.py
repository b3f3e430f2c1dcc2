"""Temperature and prior on rows that judged, one file, and the proof that it says what the network says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calibrant.commands.fit.plan import Wanted
from calibrant.commands.fit.project import Project

if TYPE_CHECKING:
    from calibrant.commands.fit.data import Rows

MODEL, CALIBRATOR = "model.onnx", "calibrator.json"
ALPHA = 0.1  # prediction sets miss so often


def calibrate(wanted: Wanted, project: Project, step: str) -> dict[str, Any]:
    """What the deployed file adds to the logits."""
    from calibrant.artifacts.predictions import PredictionsFile
    from calibrant.calibration.decisions import Decisions
    from calibrant.calibration.fitting import judged_fit

    known = project.done(step)
    if known is not None:
        return known
    folder = project.path / "predictions"
    file = next(f for f in (folder / "val.parquet", folder / "oof.parquet") if f.is_file())
    absorbed = PredictionsFile.open(file).source.absorbed
    asked: dict[str, Any] = {}
    if wanted.target_prior is not None and wanted.target_prior.strip() != "train":
        asked = {"adjust": 1.0, "target_prior": wanted.target_prior, "rows_follow": "train"}
    elif absorbed:
        asked = {"adjust": 0.0}  # what training took out is put back: the shares of these images
    fitted = judged_fit(file, decisions=Decisions((ALPHA,)), **asked)
    fitted.calibrator.save(project.path / CALIBRATOR)
    return project.finish(
        step,
        {
            "rows": file.stem,
            "temperature": fitted.calibrator.parameters.get("temperature"),
            "prior": prior_in_words(wanted),
        },
    )


def prior_in_words(wanted: Wanted) -> str:
    if wanted.target_prior is None:
        return (
            "assumed: classes are as frequent in use as among these images (--target-prior uniform, or a=0.2,b=0.8, "
            "says otherwise)"
        )
    return f"as you said: {wanted.target_prior}"


def export(wanted: Wanted, project: Project, step: str) -> dict[str, Any]:
    """model.onnx, compared with torch on real images before it gets its name."""
    from calibrant.export.config import ExportConfig
    from calibrant.export.run import export_run

    known = project.done(step)
    if known is not None and (project.path / MODEL).is_file():
        return known
    config = ExportConfig(calibrator=project.path / CALIBRATOR, images=wanted.images, name="model")
    card = export_run(project.path, project.path / MODEL, config)
    verify = dict(card.verify or {})
    return project.finish(step, {"bytes": (project.path / MODEL).stat().st_size, "difference": verify.get("max_diff")})


def prove(project: Project, rows: Rows) -> dict[str, Any] | None:
    """The file against the run's predictions of test images: winners, NLL and ECE."""
    from calibrant.export.checks.stored_predictions import check_predictions

    test = project.path / "predictions" / "test.parquet"
    if not test.is_file():
        return None
    return check_predictions(project.path / MODEL, test, replace(rows.listing), limit=64)
