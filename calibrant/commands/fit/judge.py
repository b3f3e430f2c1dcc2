"""The last step: the verdict, on rows that decided nothing, with the leaked ones and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.commands.fit.data import Rows
from calibrant.commands.fit.deploy import CALIBRATOR
from calibrant.commands.fit.heads import test_logits
from calibrant.commands.fit.plan import Wanted
from calibrant.commands.fit.project import Project

if TYPE_CHECKING:
    from calibrant.calibration.report.figures import Model
    from calibrant.train.heads.features.cache import FeatureCache


def judge(wanted: Wanted, project: Project, rows: Rows, cache: FeatureCache) -> list[Model]:
    """Each predictions file that is judged, as it is and through the calibrator."""
    from calibrant.calibration.evaluate_files import evaluate_files

    folder = project.path / "predictions"
    if rows.test is None:
        files = [next(f for f in (folder / "val.parquet", folder / "oof.parquet") if f.is_file())]
    else:
        files = [folder / "test.parquet"]
        _predict_test(wanted, project, rows, cache)
        if rows.leaked.any():
            files.append(folder / "test-without-leaks.parquet")
    return evaluate_files(
        files,
        [project.path / CALIBRATOR],
        target_prior=None if wanted.target_prior == "train" else wanted.target_prior,
        cross_fit=5 if files[0].stem == "val" else None,  # rows out of fold bring theirs
    )


def _predict_test(wanted: Wanted, project: Project, rows: Rows, cache: FeatureCache) -> None:
    from calibrant.artifacts.predictions import Predictions, read_predictions
    from calibrant.train.distributed import Ranks, pick_device
    from calibrant.train.evaluate import EvalSource
    from calibrant.train.predict import write_predictions
    from calibrant.train.run.folder import load_run

    assert rows.test is not None
    file = project.path / "predictions" / "test.parquet"
    run = load_run(project.path)
    if (project.path / "head.json").is_file():  # the features are there already
        part, logits = test_logits(project, cache)
        split = ("test",) * len(part.labels)
        Predictions(part.ids, part.labels, np.asarray(logits, np.float32), run.source(), split=split).write(file)
    else:
        device = pick_device(wanted.device, Ranks())
        run.network.to(device)
        source = EvalSource(rows.test, run.preprocessing, cache=False, workers=0, skip_bad=False, what="test images")
        write_predictions(run, source, file, split="test", device=device, batch_size=64)
    if rows.leaked.any():
        clean = np.flatnonzero(~rows.leaked)
        read_predictions(file).rows(clean).write(file.with_name("test-without-leaks.parquet"))


def summary(models: list[Model]) -> list[dict[str, Any]]:
    """What --json and fit.json keep of the verdict."""
    found = []
    for model in models:
        e = model.evaluation
        found.append(
            {
                "name": model.name, "rows": e.rows,
                "verdict": None if model.verdict is None else model.verdict.level,
                **{key: e.metrics[key].to_dict() for key in ("accuracy", "nll", "ece") if key in e.metrics},
            }
        )  # fmt: skip
    return found
