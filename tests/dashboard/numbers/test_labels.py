"""Independent labels in the dashboard's numbers: those of the command, before and after, the worst first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.calibration.cli.evaluate import evaluate
from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import labels
from calibrant.dashboard.numbers.predictions_through import Scored

from ..labelled import LABELS, write_labels


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("labels")
    write_labels(found / "many")
    return found


def test_the_numbers_are_those_of_the_command(root: Path) -> None:
    index = scan(root)
    (run,) = index.runs
    (calibrator,) = index.calibrators_for(run, run.labels[0])
    shown = labels.measured(Scored.of(run.labels[0], calibrator), 12)
    arguments = ["many/multi.npz", "--calibrator", "many/calibrator.json", "--bins", "12", "--json"]
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(root)
        said = CliRunner().invoke(evaluate, arguments, catch_exceptions=False)
    wanted = json.loads(said.stdout)["models"]
    assert [m.to_dict()["mean"] for m in shown] == [m["mean"] for m in wanted]
    assert [m.to_dict()["labels"] for m in shown] == [m["labels"] for m in wanted]
    assert [m.in_sample for m in shown] == [False, True]


def test_the_worst_label_comes_first(root: Path) -> None:
    (run,) = scan(root).runs
    (model,) = labels.measured(Scored.of(run.labels[0]))
    names = [x.name for x in labels.worst_first(model)]
    assert set(names[:2]) == {"cat", "dog"}
    assert sorted(names) == sorted(LABELS)


def test_a_diagram_holds_every_row_of_its_label(root: Path) -> None:
    (run,) = scan(root).runs
    (model,) = labels.measured(Scored.of(run.labels[0]))
    rare = next(x for x in model.evaluation.labels if x.name == "rare")
    drawn = labels.diagram(rare)
    assert drawn.rows.sum() == 600
    assert drawn.confidence[0] < 1 / 15 < drawn.confidence[2]  # a probability of 0 to 1, not the surer of two answers
