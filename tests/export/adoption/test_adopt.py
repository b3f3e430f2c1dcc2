"""An adopted file is a deployed file: every command takes it as one of our own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from PIL import Image

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import read_predictions
from calibrant.calibration.softmax import softmax
from calibrant.commands.root import cli
from calibrant.errors import CalibrantError
from calibrant.export import adopt
from calibrant.export.adoption.pictures import random_pictures
from calibrant.export.quantization import quantize
from calibrant.serve import load

from .conftest import NAMES, SIZE, WIDTH, Foreigners, Maker, spread


def overconfident(m: Maker) -> str:
    return m.put("Softmax", m.put("Mul", m.head(m.body()), m.weight(3.0)), axis=1)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A foreign file, pictures whose labels follow a third of its logits, and the adopted file."""
    folder = tmp_path_factory.mktemp("adopted")
    foreigners = Foreigners(folder)
    path = foreigners.write(overconfident)
    pixels = random_pictures(240, (SIZE, SIZE))
    (folder / "names.txt").write_text("\n".join(NAMES))
    run("adopt", path, "--classes", folder / "names.txt", "--out", folder / "model.onnx", "--scale", "0-1",
        "--train-prior", "0.4,0.3,0.1,0.1,0.1")  # fmt: skip
    p = softmax(load(folder / "model.onnx", threads=1).predict(pixels).logits / 3)
    u = np.random.default_rng(2).random((len(p), 1))
    labels = (p.cumsum(1) < u).sum(1).clip(0, 4)
    for i, (x, label) in enumerate(zip(pixels, labels, strict=True)):
        target = folder / "data" / NAMES[label]
        target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(target / f"{i}.png")
    run("predict", folder / "model.onnx", "--data", folder / "data", "--out", folder / "val.parquet")
    run("calibrate", folder / "val.parquet", "--method", "temperature", "--out", folder / "calibrator.json")
    return folder


@pytest.fixture
def model(place: Path, tmp_path: Path) -> Path:
    for name in ("model.onnx", "foreign.onnx"):
        shutil.copyfile(place / name, tmp_path / name)
    return tmp_path / "model.onnx"


def test_predict_calibrate_evaluate_recalibrate(place: Path, model: Path) -> None:
    """The temperature is found to be about the factor that made it overconfident, and lands in the file."""
    fitted = json.loads((place / "calibrator.json").read_text())
    assert fitted["parameters"]["temperature"] == pytest.approx(3, rel=0.25)
    report = json.loads(run("evaluate", place / "val.parquet", "--calibrator", place / "calibrator.json", "--json"))
    assert report
    run("recalibrate", model, place / "calibrator.json")
    before = read_predictions(place / "val.parquet")
    again = model.parent / "again.parquet"
    run("predict", model, "--data", place / "data", "--out", again)
    np.testing.assert_allclose(read_predictions(again).logits, before.logits, atol=1e-4)
    x = random_pictures(4, (SIZE, SIZE))
    t = fitted["parameters"]["temperature"]
    raw = load(place / "model.onnx", threads=1).predict(x).logits
    np.testing.assert_allclose(load(model, threads=1).predict(x).probabilities, softmax(raw / t), atol=1e-5)


def test_the_editors(model: Path) -> None:
    run("adjust", model, "--strength", "1", "--target-prior", "uniform")
    run("set-threshold", model, "0.5")
    new = model.parent / "names.json"
    new.write_text(json.dumps({"ash": "aspen"}))
    run("relabel", model, new)
    card = OnnxFile.open(model).card()
    assert card.classes[0] == "aspen"
    assert card.abstain_below == 0.5
    assert card.prior.total == 1
    assert card.adopted is not None


def test_inspect_says_where_it_came_from(model: Path) -> None:
    assert "from foreign.onnx (by hand, opset 17): probabilities output, Softmax; RGB" in run("inspect", model)
    assert "adopted" in run("inspect", model, "--markdown")
    run("inspect", model, "--check")


def test_verify_compares_with_the_foreign_file_whatever_was_edited(place: Path, model: Path) -> None:
    run("recalibrate", model, place / "calibrator.json")
    assert "agrees with foreign.onnx" in run("verify", model, "--images", place / "data")
    other = model.parent / "other.onnx"
    other.write_bytes((model.parent / "foreign.onnx").read_bytes() + b"\x32\x01x")
    with pytest.raises(CalibrantError, match="another sha256"):
        run("verify", model, "--against", other)


def test_it_is_served_over_http(model: Path) -> None:
    x = random_pictures(3, (SIZE, SIZE))
    (found,), _ = over_http(model, [x])
    np.testing.assert_allclose(found, load(model, threads=1).predict(x).probabilities, atol=1e-6)


def over_http(model: Path, requests: list[np.ndarray]) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Probabilities of each request, and the metadata."""
    import urllib.request

    from calibrant.serve.processes.background import running

    found = []
    with running(model, arguments=["--threads", "1"]) as server:
        for x in requests:
            tensor = {"name": "images", "shape": list(x.shape), "datatype": "UINT8", "data": x.ravel().tolist()}
            body = {"inputs": [tensor], "parameters": {"temperature": 1.0}}
            request = urllib.request.Request(f"{server.url}/v2/models/foreign/infer", json.dumps(body).encode())
            answer = json.loads(urllib.request.urlopen(request).read())
            p = next(o for o in answer["outputs"] if o["name"] == "probabilities")
            found.append(np.reshape(p["data"], p["shape"]))
        return found, json.loads(urllib.request.urlopen(f"{server.url}/v2/models/foreign").read())


def test_a_server_feeds_a_fixed_batch_as_its_graph_wants_it(foreigners: Foreigners) -> None:
    """Any number of rows may be asked for; the graph runs two at a time."""
    foreigners.adopt(foreigners.write(class_token, shape=(2, 3, SIZE, SIZE)))
    x = random_pictures(5, (SIZE, SIZE))
    found, told = over_http(foreigners.adopted, [x, x[:1], x[:2]])
    assert [i["shape"] for i in told["inputs"]] == [[-1, SIZE, SIZE, 3]]
    assert {o["shape"][0] for o in told["outputs"]} == {-1}
    expected = load(foreigners.adopted, threads=1).predict(x).probabilities
    for some, rows in zip(found, (5, 1, 2), strict=True):
        np.testing.assert_allclose(some, expected[:rows], atol=1e-6)


def test_triton_repository(model: Path, tmp_path: Path) -> None:
    run("export", "triton", model, tmp_path / "repository")
    assert "max_batch_size: 32" in (tmp_path / "repository" / "foreign" / "config.pbtxt").read_text()


def even(m: Maker) -> str:
    """A classifier that weighs all features alike: int8 gives them one step, the head of `spread` divides by theirs."""
    features = m.body()
    return m.put("Gemm", features, m.weight(m.rng.normal(0, 3, (len(NAMES), WIDTH))), m.weight(np.zeros(5)), transB=1)


@pytest.mark.slow
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_quantize_and_verify_by_winners(
    foreigners: Foreigners, place: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """The clock takes part in the choice of a setting: each that it may take keeps the winners."""
    monkeypatch.setattr(quantize, "choose", lambda found: found[taken])
    foreigners.adopt(foreigners.write(even))
    out = foreigners.folder / "int8.onnx"
    run("quantize", foreigners.adopted, "--data", place / "data", "--out", out, "--samples", "240")
    file = OnnxFile.open(out)
    card = file.card()
    assert "QuantizeLinear" in [n.op for n in file.nodes]
    assert card.precision["dtype"] == "int8"
    assert card.adopted is not None
    assert "same winner" in run("verify", out, "--images", place / "data")


def class_token(m: Maker) -> str:
    """Runs at a batch of two only."""
    f = m.put("Concat", m.body(), m.weight(np.zeros((2, 1))), axis=1)
    w, b = spread(m.rng, len(NAMES))
    return m.put("Gemm", f, m.weight(np.hstack([w, np.zeros((len(NAMES), 1))])), m.weight(b), transB=1)


def test_a_fixed_batch_is_served_row_by_row(foreigners: Foreigners, place: Path) -> None:
    done = foreigners.adopt(foreigners.write(class_token, shape=(2, 3, SIZE, SIZE)))
    assert done.body.batch == 2
    x = random_pictures(5, (SIZE, SIZE))
    classifier = load(foreigners.adopted, threads=1)
    all_at_once = classifier.predict(x).logits
    one_by_one = np.concatenate([classifier.predict(x[i : i + 1]).logits for i in range(5)])
    np.testing.assert_allclose(all_at_once, one_by_one, atol=1e-6)
    run("predict", foreigners.adopted, "--data", place / "data", "--out", foreigners.folder / "p.parquet")
    run("recalibrate", foreigners.adopted, place / "calibrator.json")
    assert load(foreigners.adopted, threads=1).predict(x).logits.shape == (5, 5)
    dims = onnx.load(str(foreigners.adopted)).graph.output[0].type.tensor_type.shape.dim
    assert dims[0].dim_value == 2


def test_in_python_with_names_as_a_list(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.head(m.body()))
    done = adopt(path, foreigners.adopted, classes=list(NAMES), name="trees", author="somebody")
    assert (done.card.name, done.card.author) == ("trees", "somebody")


@pytest.mark.parametrize("shape", [("n", 3, SIZE, SIZE), (1, 3, SIZE, SIZE)])
def test_names_that_are_ours_in_the_adopted_file(foreigners: Foreigners, shape: tuple[int | str, ...]) -> None:
    path = foreigners.write(
        lambda m: m.put("Softmax", m.head(m.body("images"), output="logits"), axis=-1, output="probabilities"),
        shape=shape,
    )
    model = onnx.load(str(path))
    model.graph.input[0].name = "images"
    onnx.save(model, str(path))
    done = foreigners.adopt(path)
    assert done.found.kind == "probabilities"
    x = random_pictures(3, (SIZE, SIZE))
    feed = x.astype(np.float32).transpose(0, 3, 1, 2) / 255
    original = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = np.concatenate([original.run(["probabilities"], {"images": feed[i : i + 1]})[0] for i in range(3)])
    np.testing.assert_allclose(load(foreigners.adopted, threads=1).predict(x).probabilities, expected, atol=1e-5)
    run("verify", foreigners.adopted)


def test_independent_labels_from_the_foreign_file_to_the_answer(foreigners: Foreigners, place: Path) -> None:
    """Each label keeps a probability of its own through a calibrator, an edit and the server's answer."""
    from calibrant.calibration import fit
    from calibrant.calibration.independent.fit import fit_labels
    from calibrant.errors import ConfigError
    from calibrant.export.edit import adjust, recalibrate
    from calibrant.serve.engine.classifier import load

    path = foreigners.write(lambda m: m.put("Sigmoid", m.head(m.body())))
    foreigners.adopt(path)
    pixels = random_pictures(60, (SIZE, SIZE))
    before = load(foreigners.adopted).predict(pixels)
    present = (np.random.default_rng(0).random((60, 5)) < 1 / (1 + np.exp(-before.logits / 3))).astype(np.int8)
    calibrator = fit_labels("temperature", before.logits, present)
    recalibrate(foreigners.adopted, calibrator)
    found = load(foreigners.adopted).predict(pixels)
    expected = 1 / (1 + np.exp(-before.logits.astype(np.float64) / calibrator.parameters["temperature"]))
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    row = found.to_rows()[0]
    assert row["labels"] == [name for name, p in zip(NAMES, expected[0], strict=True) if p >= 0.5]
    assert row["probabilities"] == pytest.approx(dict(zip(NAMES, expected[0], strict=True)), abs=1e-5)
    with pytest.raises(ConfigError, match="labels are independent"):
        adjust(foreigners.adopted, 1.0)
    with pytest.raises(ConfigError, match="fitted for exclusive labels"):
        recalibrate(foreigners.adopted, fit("temperature", before.logits, present.argmax(1)))
