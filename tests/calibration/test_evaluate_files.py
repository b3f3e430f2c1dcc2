"""What an evaluation of files says before its numbers, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Predictions, Source, read_predictions
from calibrant.calibration import Calibrator, fit, metrics
from calibrant.calibration.evaluate_files import evaluate_files
from calibrant.calibration.fitting import fit_file
from calibrant.calibration.softmax import softmax
from calibrant.calibration.subjects import file_names, names_apart
from calibrant.commands.root import cli
from calibrant.errors import CalibrantError

PRIOR = np.array([0.6, 0.3, 0.1])


def write(path: Path, shares: np.ndarray, *, rows: int = 600, seed: int = 0, sharpness: float = 2.0) -> Path:
    """Over-confident logits of a model trained on PRIOR; rows with the class shares asked for."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, rows, p=shares)
    z = sharpness * (1.5 * np.eye(3)[y] + rng.normal(size=(rows, 3)) + np.log(PRIOR))
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = tuple(f"{seed}-{i}" for i in range(rows))
    Predictions(ids, y, z.astype(np.float32), Source(("a", "b", "c"), tuple(PRIOR.tolist()))).write(path)
    return path


def test_a_calibrator_on_its_own_rows_is_marked_and_cross_fitting_mends_it(tmp_path: Path) -> None:
    val, test = write(tmp_path / "val.parquet", PRIOR), write(tmp_path / "test.parquet", PRIOR, seed=1)
    fit_file(val, "temperature").save(tmp_path / "c.json")
    plain, seen, _, fresh = evaluate_files([val, test], [tmp_path / "c.json"])
    assert [m.in_sample for m in (plain, seen, fresh)] == [False, True, False]
    assert "very rows" in seen.notes[0]
    assert fresh.notes == ()
    _, crossed, _, same = evaluate_files([val, test], [tmp_path / "c.json"], cross_fit=4)
    assert crossed.name == "val, c, cross-fitted"
    assert not crossed.in_sample
    assert same.evaluation.metrics["nll"].value == fresh.evaluation.metrics["nll"].value
    data = read_predictions(val)
    fold = np.random.default_rng(0).permutation(len(data)) % 4
    expected = 0.0
    for f in range(4):
        other = fit("temperature", data.logits[fold != f], data.labels[fold != f]).parameters["temperature"]
        p = softmax(data.logits[fold == f] / other)
        expected -= np.log(p[np.arange(len(p)), data.labels[fold == f]]).sum()
    assert crossed.evaluation.metrics["nll"].value == pytest.approx(expected / len(data), rel=1e-7)


def test_the_same_rows_in_another_file_are_known_again(tmp_path: Path) -> None:
    val = write(tmp_path / "val.parquet", PRIOR)
    fit_file(val).save(tmp_path / "c.json")
    data = read_predictions(val)
    np.savez(tmp_path / "copy.npz", logits=data.logits, labels=data.labels)
    assert evaluate_files([tmp_path / "copy.npz"], [tmp_path / "c.json"])[1].in_sample


def test_rows_with_other_class_shares_are_named_with_the_call_that_helps(tmp_path: Path) -> None:
    val = write(tmp_path / "val.parquet", PRIOR, rows=3000)
    even = write(tmp_path / "test.parquet", np.full(3, 1 / 3), rows=3000, seed=1)
    fit_file(val, "vector").save(tmp_path / "c.json")
    found = evaluate_files([even], [tmp_path / "c.json"])[1]
    (note,) = found.notes
    assert "other class shares" in note
    assert note.endswith(
        f"calibrant evaluate {even} --calibrator {tmp_path / 'c.json'} --adjust 1 --target-prior uniform"
    )
    better = evaluate_files([even], [tmp_path / "c.json"], adjust=1.0, target_prior="uniform")[1]
    assert better.notes == ()
    assert better.evaluation.metrics["ece"].value < 0.5 * found.evaluation.metrics["ece"].value


def test_a_map_fitted_before_the_correction_holds_it(tmp_path: Path) -> None:
    """--rows-follow train: T as without a correction, and the correction of strength 1 in the file."""
    val = write(tmp_path / "val.parquet", PRIOR)
    plain = fit_file(val)
    found = fit_file(val, adjust=1.0, rows_follow="train")
    assert found.parameters == plain.parameters
    assert found.prior is not None
    np.testing.assert_allclose(found.prior.shift(), np.log(3 * PRIOR), atol=1e-12)
    with pytest.raises(CalibrantError, match="add --adjust 1"):
        fit_file(val, rows_follow="train")


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [tmp_path / r / "predictions" / "test.parquet" for r in ("ce", "vace")]
    assert names_apart(runs) == ["ce/test", "vace/test"]
    assert names_apart([tmp_path / "a.parquet", tmp_path / "b.parquet"]) == ["a", "b"]
    assert names_apart([runs[0], runs[0]]) == [
        f"{names_apart([runs[0], runs[0]])[0][:-4]} (1)",
        names_apart([runs[0]] * 2)[1],
    ]
    assert file_names(runs) == ["ce/test", "vace/test"]
    assert file_names([runs[0], tmp_path / "val.parquet"]) == ["test.parquet", "val.parquet"]
    for i, run in enumerate(runs):
        write(run, PRIOR, seed=i)
    assert [m.name for m in evaluate_files(runs)] == ["ce/test", "vace/test"]


def test_a_run_folder_brings_its_test_predictions_and_its_calibrator(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "predictions" / "val.parquet", PRIOR)
    test = write(run / "predictions" / "test.parquet", PRIOR, seed=1)
    fit_file(run).save(run / "calibrator.json")
    assert Calibrator.load(run / "calibrator.json").fitted_on["path"] == "val.parquet"
    names = [m.name for m in evaluate_files([run])]
    assert names == ["test", "test, calibrator"]
    assert evaluate_files([run])[0].evaluation.metrics["nll"].value == evaluate_files([test])[0].evaluation.nll.value


def test_probabilities_are_refused_as_logits_and_taken_when_said(tmp_path: Path) -> None:
    data = read_predictions(write(tmp_path / "z.parquet", PRIOR))
    p = softmax(data.logits).astype(np.float32)
    Predictions(data.ids, data.labels, p, data.source).write(tmp_path / "p.parquet")
    for refused in (evaluate_files, fit_file):
        with pytest.raises(CalibrantError, match="pass --kind probabilities"):
            refused([tmp_path / "p.parquet"] if refused is evaluate_files else tmp_path / "p.parquet")  # type: ignore[operator]
    found = evaluate_files([tmp_path / "p.parquet"], asked=Asked("probabilities"))[0].evaluation.metrics
    assert found["nll"].value == pytest.approx(metrics.nll(softmax(data.logits), data.labels), abs=1e-5)
    with pytest.raises(CalibrantError, match="do not add up to one"):
        evaluate_files([tmp_path / "z.parquet"], asked=Asked("probabilities"))
    np.savez(tmp_path / "p.npz", probabilities=p, labels=data.labels)
    assert evaluate_files([tmp_path / "p.npz"])[0].evaluation.nll.value == pytest.approx(found["nll"].value, abs=1e-6)


def test_weights_of_rows_are_refused_where_they_would_be_ignored(tmp_path: Path) -> None:
    logits = np.tile([[2.0, 0.0], [0.0, 2.0]], (10, 1))
    np.savez(tmp_path / "p.npz", logits=logits, labels=np.tile([0, 1], 10), weights=np.ones(20))
    with pytest.raises(CalibrantError, match="holds weights of single rows"):
        evaluate_files([tmp_path / "p.npz"])


def test_the_file_says_what_it_was_fitted_on(tmp_path: Path) -> None:
    val = write(tmp_path / "val.parquet", PRIOR)
    fit_file(val, adjust=1.0).save(tmp_path / "c.json")
    block = json.loads((tmp_path / "c.json").read_text())
    assert block["prior"] == {"train": pytest.approx(PRIOR.tolist()), "target": None, "absorbed": 0.0, "applied": 1.0}
    assert {"sha256", "rows_sha256", "rows", "prior", "rows_follow"} <= block["fitted_on"].keys()


def test_the_verdict_is_said_first_unless_the_calibrator_makes_it_worse(tmp_path: Path) -> None:
    """What a file was taken for stands right after it; that a calibrator is for other rows, and harms, before it."""
    data = read_predictions(write(tmp_path / "test.parquet", np.full(3, 1 / 3), rows=3000, seed=1))
    np.savez(tmp_path / "p.npz", logits=softmax(data.logits), labels=data.labels)
    said = CliRunner().invoke(cli, ["calibrate", str(tmp_path / "p.npz"), "--out", str(tmp_path / "c.json")]).output
    verdict, numbers, *_ = said.split("\n\n")
    assert verdict.startswith("Usable with care: ")
    assert verdict.splitlines()[-1].startswith("Note: `logits` holds probabilities by its values, and is read as such")
    assert numbers.startswith("T = ")
    fit_file(write(tmp_path / "val.parquet", PRIOR, rows=3000), "vector").save(tmp_path / "v.json")
    args = ["evaluate", str(tmp_path / "test.parquet"), "--calibrator", str(tmp_path / "v.json")]
    shift = "Note: test, v: its confidence is for rows with other class shares than these; ECE goes"
    verdict = CliRunner().invoke(cli, args).output.split("\n\n")[0]
    assert verdict.startswith("test, v: ")
    assert verdict.splitlines()[-1].startswith(shift)
    write(tmp_path / "test.parquet", np.full(3, 1 / 3), rows=3000, seed=1, sharpness=1.0)
    write(tmp_path / "val.parquet", PRIOR, rows=3000, sharpness=0.7)
    fit_file(tmp_path / "val.parquet", "vector").save(tmp_path / "v.json")
    first, second, *_ = CliRunner().invoke(cli, [*args, "--report", str(tmp_path / "r.html")]).output.splitlines()
    assert first.startswith(shift)
    assert ", which is worse. " in first
    assert first.endswith("--adjust 1 --target-prior uniform")
    assert second.startswith("test, v: ")
    page = (tmp_path / "r.html").read_text()
    assert page.index("other class shares than these; ECE goes") < page.index(
        "other class shares than its calibrator saw"
    )


def test_an_infinite_loss_is_said(tmp_path: Path) -> None:
    data = read_predictions(write(tmp_path / "test.parquet", PRIOR))
    z = data.logits.copy()
    z[np.arange(3), data.labels[:3]] = -np.inf
    np.savez(tmp_path / "out.npz", logits=z, labels=data.labels)
    (found,) = evaluate_files([tmp_path / "out.npz"])
    assert "3 of 600 rows have a label of probability 0, so the NLL is infinite" in found.notes[0]
    fit_file(tmp_path / "out.npz").save(tmp_path / "c.json")
    _, through = evaluate_files([tmp_path / "out.npz"], [tmp_path / "c.json"])
    assert through.in_sample
    assert "infinite" in through.notes[0]


def sites(rows: int = 1600) -> Predictions:
    """Claims of .6 and .9 that hold at site "x", are a quarter too high at "y", and six more rows elsewhere."""
    block = np.arange(rows // 2) / (rows // 2) + 1e-9
    right = np.concatenate([block < share for share in (0.6, 0.9, 0.35, 0.65)] + [np.ones(6, bool)])
    claim = np.concatenate([np.tile(np.repeat([0.6, 0.9], rows // 2), 2), np.full(6, 0.6)])
    n = len(right)
    said = np.arange(n) % 3
    p = np.stack([np.roll([c, 0.6 * (1 - c), 0.4 * (1 - c)], k) for c, k in zip(claim, said, strict=True)])
    site = ("x",) * rows + ("y",) * rows + ("z",) * 6
    y = np.where(right, said, (said + 1) % 3)
    ids = tuple(map(str, range(n)))
    return Predictions(ids, y, np.log(p).astype(np.float32), Source(("a", "b", "c")), groups={"site": site})


def test_each_group_of_rows_is_judged_by_itself_in_our_files_and_others(tmp_path: Path) -> None:
    data = sites()
    data.write(tmp_path / "own.parquet")
    group = np.array(data.groups["site"])
    np.savez(tmp_path / "g.npz", logits=data.logits, labels=data.labels, group_site=group)
    for path in (tmp_path / "own.parquet", tmp_path / "g.npz"):
        (model,) = evaluate_files([path])
        x, y = model.evaluation.row_groups
        assert ([x.name, y.name], [x.rows, y.rows]) == (['site "x"', 'site "y"'], [1600, 1600])
        assert (x.metrics["accuracy"].value, y.metrics["accuracy"].value) == (0.75, 0.5)
        assert y.metrics["ece"].value == pytest.approx(0.25, abs=1e-6)
        assert "group `site`: 2 of its 3 values are judged by themselves" in " ".join(model.notes)
        cause = model.verdict.causes[0]
        assert (cause.kind, cause.evidence["column"], cause.evidence["name"]) == ("group", "site", "y")
        assert "it claims 25 points more than it is right, elsewhere it is off by less than a point" in cause.text
    out = CliRunner().invoke(cli, ["evaluate", str(tmp_path / "g.npz"), "--report", str(tmp_path / "r.html")]).output
    assert 'site "y"' in out
    assert "site &quot;y&quot;" in (tmp_path / "r.html").read_text()
    found = json.loads(CliRunner().invoke(cli, ["evaluate", str(tmp_path / "g.npz"), "--json"]).output)
    assert [g["value"] for g in found["models"][0]["row_groups"]] == ["x", "y"]
    fitted = CliRunner().invoke(cli, ["calibrate", str(tmp_path / "g.npz"), "--out", str(tmp_path / "c.json")]).output
    assert 'site "y"' in fitted
    through = evaluate_files([tmp_path / "g.npz"], [tmp_path / "c.json"])[1].evaluation.row_groups
    assert through[1].metrics["mean_confidence"].value < 0.7  # through the map
    crossed = evaluate_files([tmp_path / "g.npz"], [tmp_path / "c.json"], cross_fit=3)[1].evaluation.row_groups
    assert [g.rows for g in crossed] == [1600, 1600]


def test_rows_of_a_group_weigh_what_they_weigh_in_the_whole(tmp_path: Path) -> None:
    data = sites(rows=300)
    data.write(tmp_path / "own.parquet")
    (model,) = evaluate_files([tmp_path / "own.parquet"], target_prior="0.7,0.2,0.1")
    labels, site = data.labels, np.array(data.groups["site"])
    w = (np.array([0.7, 0.2, 0.1]) / np.bincount(labels))[labels]
    right = data.logits.argmax(axis=1) == labels
    for group in model.evaluation.row_groups:
        here = site == group.value
        expected = (w * right)[here].sum() / w[here].sum()
        assert group.metrics["accuracy"].value == pytest.approx(expected)
        assert group.weight == pytest.approx(len(labels) * w[here].sum() / w.sum())
