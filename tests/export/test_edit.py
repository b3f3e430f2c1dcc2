from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from calibrant.artifacts.model_card import KEY, ModelCard, Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_rewrite import GraphEdit, rewrite
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.calibration import Calibrator
from calibrant.commands.root import cli
from calibrant.errors import ConfigError, DataError, FormatError
from calibrant.export import edit
from calibrant.export.checks.parity import session
from calibrant.export.graph.assemble import build_tail, write_deployed

from .conftest import CLASSES, PRIOR, pixels

Export = Callable[..., tuple[Path, ModelCard]]
C = len(CLASSES)
RNG = np.random.default_rng(7)
CALIBRATORS = {
    "temperature": Calibrator("temperature", C, {"temperature": 1.7}),
    "vector": Calibrator("vector", C, {"weights": [0.5, 1, 1.5, 2, 0.7], "bias": [0.1, -0.2, 0, 0.3, 1]}),
    "matrix": Calibrator(
        "matrix", C, {"matrix": (np.eye(C) + RNG.normal(0, 0.2, (C, C))).tolist(), "bias": [0.1, 0, -0.3, 0, 0.2]}
    ),
    "dirichlet": Calibrator(
        "dirichlet", C, {"matrix": (np.eye(C) + RNG.normal(0, 0.2, (C, C))).tolist(), "bias": [0.1, 0, -0.3, 0, 0.2]}
    ),
}


def logits(path: Path) -> NDArray[np.float32]:
    found: NDArray[np.float32] = session(path).run(["logits"], {"images": pixels(8)})[0]
    return found


@pytest.fixture
def model(deployed: Path, tmp_path: Path) -> Path:
    path = tmp_path / "edited.onnx"
    path.write_bytes(deployed.read_bytes())
    return path


@pytest.mark.parametrize("first", list(CALIBRATORS))
@pytest.mark.parametrize("second", list(CALIBRATORS))
def test_any_calibrator_can_take_the_place_of_any_other(deployed: Path, model: Path, first: str, second: str) -> None:
    edit.recalibrate(model, CALIBRATORS[first])
    card = edit.recalibrate(model, CALIBRATORS[second])
    expected = CALIBRATORS[second].logits(logits(deployed))
    np.testing.assert_allclose(logits(model), expected, atol=3e-5)
    assert card.calibrator is not None
    assert card.calibrator["method"] == second
    np.testing.assert_allclose(
        logits_after_removal(model), logits(deployed), atol=3e-5, err_msg="the raw classifier was not kept"
    )


def logits_after_removal(path: Path) -> NDArray[np.float32]:
    edit.recalibrate(path, None)
    return logits(path)


def test_affine_calibrators_add_no_node_and_dirichlet_two(deployed: Path, model: Path) -> None:
    plain = len(OnnxFile.open(deployed).nodes)
    for name, more in (("temperature", 0), ("vector", 0), ("matrix", 0), ("dirichlet", 2)):
        edit.recalibrate(model, CALIBRATORS[name])
        assert len(OnnxFile.open(model).nodes) == plain + more, name


def test_adjusting_by_hand(deployed: Path, model: Path) -> None:
    card = edit.adjust(model, 1.5, target_prior="0.1,0.1,0.2,0.2,0.4")
    ratio = np.log(np.array(PRIOR) / [0.1, 0.1, 0.2, 0.2, 0.4])
    np.testing.assert_allclose(logits(model), logits(deployed) - 1.5 * ratio, atol=2e-5)
    assert card.prior.total == 1.5
    edit.adjust(model, 0.0, target_prior="uniform")
    np.testing.assert_allclose(logits(model), logits(deployed), atol=1e-5)


def test_adjusting_to_the_prior_that_served_rows_show(deployed: Path, model: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    files = {}
    for name, prior in (("val", [0.2] * 5), ("june", [0.6, 0.1, 0.1, 0.1, 0.1])):
        labels = rng.choice(C, 800, p=prior)
        z = 3 * np.eye(C)[labels] + rng.normal(size=(800, C))
        files[name] = tmp_path / f"{name}.parquet"
        known = labels if name == "val" else np.full(800, -1)
        Predictions(tuple(map(str, range(800))), known, z.astype(np.float32), Source(tuple(CLASSES))).write(files[name])
    target = f"estimate:{files['june']}"
    with pytest.raises(ConfigError, match="--labelled"):
        edit.adjust(model, 1.0, target_prior=target)
    card = edit.adjust(model, 1.0, target_prior=target, labelled=files["val"])
    assert card.prior.target == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1], abs=0.05)
    ratio = np.log(np.array(PRIOR) / np.array(card.prior.target))
    np.testing.assert_allclose(logits(model), logits(deployed) - ratio, atol=2e-5)


def test_a_hundred_edits_drift_less_than_rounding_of_one_model(deployed: Path, model: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(50):
        edit.recalibrate(model, Calibrator("temperature", C, {"temperature": float(rng.uniform(0.3, 3))}))
        if i % 5 == 0:
            edit.adjust(model, float(rng.uniform(-1, 2)))
    edit.adjust(model, 0.0)
    edit.recalibrate(model, None)
    np.testing.assert_allclose(logits(model), logits(deployed), atol=5e-5)
    assert len(edit.set_threshold(model, 0.5).history) == 63


@pytest.mark.parametrize("scale", [0.0, 1e-5])
def test_a_class_that_a_vector_turns_off_comes_back(deployed: Path, model: Path, scale: float) -> None:
    edit.recalibrate(model, Calibrator("vector", C, {"weights": [scale, 1, 1, 1, 1], "bias": [-8.1, 0, 0, 0, 0]}))
    edit.recalibrate(model, None)
    np.testing.assert_allclose(logits(model), logits(deployed), atol=2e-5)


def test_every_edit_is_written_down_and_leaves_the_weights(deployed: Path, model: Path) -> None:
    before = OnnxFile.open(deployed).card()
    edit.recalibrate(model, CALIBRATORS["temperature"])
    middle = OnnxFile.open(model).card()
    card = edit.adjust(model, 1.0)
    assert [h["what"] for h in card.history] == ["recalibrated: temperature", "adjusted: total 1 towards uniform"]
    assert [h["from_hash"] for h in card.history] == [before.hashes["graph"], middle.hashes["graph"]]
    after = OnnxFile.open(model)
    assert after.card().hashes == {**after.hashes(), "block": after.card().to_dict()["hashes"]["block"]}
    assert after.hash_weights() == before.hashes["weights"]
    assert after.hash_graph() != before.hashes["graph"]
    assert not any("from_file" in h for h in card.history)  # it answers otherwise than the file that it was
    was = hashlib.sha256(model.read_bytes()).hexdigest()
    assert edit.set_threshold(model, 0.5).history[-1]["from_file"] == was


def test_threshold_and_names_touch_the_metadata_only(model: Path) -> None:
    before = OnnxFile.open(model).hash_graph()
    edit.set_threshold(model, 0.7)
    edit.relabel(model, {"elm": "Ulme"})
    file = OnnxFile.open(model)
    assert file.hash_graph() == before
    card = file.card()
    assert card.abstain_below == 0.7
    assert card.classes == ("ash", "birch", "cedar", "Ulme", "fir")
    card = edit.relabel(model, list("abcde"))
    assert card.classes == tuple("abcde")
    assert card.former_classes == ("ash", "birch", "cedar", "elm", "fir")
    assert OnnxFile.open(model).card().former_classes == card.former_classes
    assert edit.set_threshold(model, None).abstain_below is None


def test_conformal_quantiles_do_not_survive_other_probabilities(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    card = OnnxFile.open(model).card()
    edit.restamp(model, replace(card, conformal={"0.1": 0.9}))
    assert edit.recalibrate(model, CALIBRATORS["temperature"]).conformal is None
    assert "conformal quantiles" in caplog.text


def test_a_calibrator_without_a_correction_leaves_the_files_own_and_says_so(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit.adjust(model, 1.0, target_prior="uniform")
    caplog.clear()
    assert edit.recalibrate(model, CALIBRATORS["temperature"]).prior.total == 1.0
    assert "holds no prior correction, so the file's own (total 1) stays" in caplog.text
    edit.adjust(model, 0.0, target_prior="uniform")
    caplog.clear()
    edit.recalibrate(model, CALIBRATORS["temperature"])
    assert "holds no prior correction" not in caplog.text


def test_prediction_sets_come_with_the_calibrator(model: Path) -> None:
    from calibrant.export.checks.card_text import rows

    assert dict(rows(OnnxFile.open(model).card()))["prediction sets"] == "none"
    calibrator = replace(CALIBRATORS["temperature"], conformal={"0.1": {"threshold": 0.9}})
    assert dict(rows(edit.recalibrate(model, calibrator)))["prediction sets"] == "90 %"
    # they belong to the prior of the calibrator's own rows: under another they would not cover
    assert dict(rows(edit.adjust(model, 1.0)))["prediction sets"].startswith("none given")
    assert dict(rows(edit.recalibrate(model, None)))["prediction sets"] == "none"


def test_the_verdict_of_the_fit_is_shown_as_long_as_the_formula_is_the_one_that_was_judged(model: Path) -> None:
    from calibrant.export.checks.card_text import rows, summary

    assert dict(rows(OnnxFile.open(model).card()))["verdict"].startswith("not known")
    judged = {"level": "care", "sentence": "Usable with care.", "causes": [], "remedies": [], "judged_shift": [0.0] * 5}
    card = edit.recalibrate(model, replace(CALIBRATORS["temperature"], metrics={"verdict": judged}))
    assert dict(rows(card))["verdict"] == "Usable with care. Each row was judged by a calibrator that had not seen it."
    assert "Usable with care." in summary(card, model)
    assert dict(rows(edit.adjust(model, 1.0)))["verdict"].startswith("not known for this prior correction")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: edit.recalibrate(m, Calibrator("temperature", 3, {"temperature": 1.0})), "maps 3 classes"),
        (lambda m: edit.adjust(m), "nothing to change"),
        (lambda m: edit.adjust(m, float("nan")), "strength is nan"),
        (lambda m: edit.adjust(m, 1.0, target_prior="0.5,0.5"), "2 shares for 5 classes"),
        (lambda m: edit.adjust(m, 1.0, target_prior="half"), "is not a prior"),
        (lambda m: edit.adjust(m, 1.0, train_prior="1,1,1,1,0"), "training prior of fir is 0"),
        (lambda m: edit.adjust(m, 1.0, train_prior="1;2"), '--train-prior: "1;2" is not a prior'),
        (lambda m: edit.adjust(m, target_prior="1,2,3,4,5"), "a target prior changes nothing"),
        (lambda m: edit.adjust(m, 1.0, target_prior="1,1,1,1,-1"), "not negative"),
        (lambda m: edit.set_threshold(m, 80), "is a probability"),
        (lambda m: edit.relabel(m, ["a"]), "1 names for 5 classes"),
        (lambda m: edit.relabel(m, ["a", "a", "b", "c", "d"]), "must be different"),
        (lambda m: edit.relabel(m, {"elmm": "x"}), 'did you mean "elm"'),
    ],
)
def test_wrong_edits_are_named_and_change_nothing(model: Path, call: Callable[[Path], object], message: str) -> None:
    before = model.read_bytes()
    with pytest.raises((ConfigError, DataError), match=message):
        call(model)
    assert model.read_bytes() == before


def test_an_edit_goes_through_a_link_and_keeps_permissions(model: Path, tmp_path: Path) -> None:
    link = tmp_path / "current.onnx"
    link.symlink_to(model.name)
    model.chmod(0o640)
    edit.set_threshold(link, 0.4)
    assert link.is_symlink()
    assert OnnxFile.open(model).card().abstain_below == 0.4
    assert model.stat().st_mode & 0o777 == 0o640


def test_a_read_only_file_is_left_alone(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # which is always True for root
    with pytest.raises(DataError, match="edited.onnx: is read-only; write the changed file elsewhere with --out"):
        edit.adjust(model, 1.0)
    edit.adjust(model, 1.0, out=tmp_path / "other.onnx")
    assert OnnxFile.open(model).card().history == ()


def test_a_target_that_cannot_be_written_is_the_one_that_is_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for out in ("file/x.onnx", "folder"):
        with pytest.raises(DataError, match=f"{tmp_path / out}: cannot be written"):
            edit.adjust(model, 1.0, out=tmp_path / out)
    assert not list((tmp_path / "folder").iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["edited.onnx", "file", "folder"]


def test_a_file_that_was_never_compared_can_be_edited_and_shown(model: Path) -> None:
    edit.restamp(model, replace(OnnxFile.open(model).card(), verify=None))
    result = CliRunner().invoke(cli, ["adjust", str(model), "--strength", "1"])
    assert result.exit_code == 0, result.exception
    assert "NOT compared with torch; what was edited agrees with the formula" in result.stdout


def test_class_names_of_a_windows_editor(model: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_bytes("\ufeffEsche\r\nBirke\r\nZeder\r\nUlme\r\nTanne\r\n".encode())
    assert CliRunner().invoke(cli, ["relabel", str(model), str(names)]).exit_code == 0
    assert OnnxFile.open(model).card().classes == ("Esche", "Birke", "Zeder", "Ulme", "Tanne")


def test_a_changed_weight_is_refused(model: Path) -> None:
    file = OnnxFile.open(model)
    begin, _ = file.initializers["network.stem.weight"].data[0]
    data = bytearray(model.read_bytes())
    data[begin + 2] ^= 1
    model.write_bytes(data)
    with pytest.raises(FormatError, match="do not match the hash recorded at export"):
        edit.adjust(model, 1.0)


def test_editing_a_foreign_file_says_what_it_is(tmp_path: Path, deployed: Path) -> None:
    file = OnnxFile.open(deployed)
    rewrite(file, tmp_path / "f.onnx", metadata=lambda _: {}, drop_keys=[KEY], producer=("pytorch", "2"))
    with pytest.raises(FormatError, match="without a calibrant block.*pytorch"):
        edit.adjust(tmp_path / "f.onnx", 1.0)


MEASURE = """
import sys, time
for name in ("torch", "onnx", "timm"):
    sys.modules[name] = None  # importing any of them fails
from calibrant.__main__ import main
start, cpu = time.perf_counter(), time.process_time()
try:
    main()
except SystemExit as stop:
    code = stop.code
# not getrusage: a child starts with its parent's peak there
rss = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("MEASURED", code or 0, time.process_time() - cpu, rss, file=sys.stderr)
"""


def measured(*arguments: str) -> tuple[str, float, float]:
    """Runs the command where torch and onnx cannot be imported; gives stdout, CPU seconds and peak bytes."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=False)
    line = next(text for text in done.stderr.splitlines() if text.startswith("MEASURED"))
    _, code, seconds, rss = line.split()
    assert code == "0", done.stderr
    return done.stdout, float(seconds), float(rss)


def _seconds_of_a_pass(path: Path) -> float:
    """CPU seconds to read, hash and write the file once."""
    start = time.process_time()
    data = path.read_bytes()
    hashlib.sha256(data)
    path.with_suffix(".copy").write_bytes(data)
    return time.process_time() - start


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads peak memory from Linux's /proc")
def test_a_large_file_is_edited_without_torch_onnx_or_much_memory(deployed: Path, tmp_path: Path) -> None:
    """Of the size of a ResNet-50 with its classifier of a thousand classes; editing never runs the body."""
    classes, width = 1000, 2048
    path, body = tmp_path / "large.onnx", tmp_path / "body.onnx"
    file, rng = OnnxFile.open(deployed), np.random.default_rng(0)
    ballast = rng.standard_normal(23_500_000, np.float32)
    rewrite(file, body, edit=GraphEdit(initializers={"ballast": ballast}), metadata=lambda _: {})
    card = file.card()
    assert card.head is not None
    card = replace(
        card, classes=tuple(f"c{i}" for i in range(classes)), prior=Prior((1 / classes,) * classes),
        outputs=("probabilities", "logits"), head=replace(card.head, feature_dim=width),
    )  # fmt: skip
    weight, bias = rng.standard_normal((classes, width)), rng.standard_normal(classes)
    write_deployed(OnnxFile.open(body), path, card, build_tail(card, weight, bias, width))
    size = path.stat().st_size
    assert 100e6 < size < 105e6
    calibrator = tmp_path / "c.json"
    Calibrator("temperature", classes, {"temperature": 1.7}).save(calibrator)
    _, start, _ = measured("--version")
    for arguments in (("recalibrate", str(path), str(calibrator)), ("adjust", str(path), "--strength", "1")):
        _, seconds, rss = measured(*arguments)
        assert rss < 1.5 * size, f"{arguments[0]}: {rss / 1e6:.0f} MB for a file of {size / 1e6:.0f} MB"
        # Reading, checking, hashing and writing: a few passes over the bytes, whatever a pass costs on this machine.
        passes = (seconds - start) / _seconds_of_a_pass(path)
        assert passes < 8, f"{arguments[0]} took {seconds:.2f} s of CPU, {passes:.1f} passes of hash and copy"
    history = OnnxFile.open(path).card().history
    assert [h["what"].split(":")[0] for h in history] == ["recalibrated", "adjusted"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads peak memory from Linux's /proc")
def test_inspect_runs_without_torch_and_onnx(deployed: Path) -> None:
    text, _, _ = measured("inspect", str(deployed))
    assert "ash, birch, cedar" in text
    assert "intact" in text
    block = json.loads(measured("inspect", str(deployed), "--json")[0])
    assert block["card"]["classes"] == list(CLASSES)
    assert block["outputs"][0] == {"name": "probabilities", "dtype": "float32", "shape": ["N", 5]}
    assert measured("inspect", str(deployed), "--markdown")[0].startswith("# tiny\n")


def test_a_calibrator_of_served_answers_is_not_taken_for_one_of_the_network(model: Path) -> None:
    """It was fitted on what the file's own calibrator gives; in its place it would be another thing."""
    of_answers = Calibrator("temperature", C, {"temperature": 1.2}).with_context(
        fitted_on={"model": {"applied": "everything in the deployed file"}}, metrics={}
    )
    with pytest.raises(DataError, match="belongs after that file's own"):
        edit.recalibrate(model, of_answers)


def test_editors_say_the_card_as_json_and_replace_no_other_file_unasked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALIBRANT_OVERWRITE", raising=False)
    out = tmp_path / "other.onnx"
    line = ["adjust", str(model), "--strength", "1", "--out", str(out), "--json"]
    card = json.loads(CliRunner().invoke(cli, line).stdout)
    assert card["classes"] == list(OnnxFile.open(out).card().to_dict()["classes"])
    before = out.read_bytes()
    refused = CliRunner().invoke(cli, line)
    assert isinstance(refused.exception, ConfigError)
    assert "other.onnx: is there already; pass --overwrite" in str(refused.exception)
    assert out.read_bytes() == before
    assert CliRunner().invoke(cli, [*line, "--overwrite"]).exit_code == 0
