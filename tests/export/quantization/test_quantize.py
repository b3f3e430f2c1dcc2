from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from PIL import Image
from torch import Tensor, nn

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, CheckFailed, ConfigError, DataError, ModelError
from calibrant.export import edit, export_onnx
from calibrant.export.checks.measure import Cost, Quality, agreement, quality, ridge, rmse
from calibrant.export.checks.parity import session
from calibrant.export.quantization import quantize as module
from calibrant.export.quantization.candidates import Candidate, Data, choose
from calibrant.export.quantization.quantize import quantize, quantize_folders
from calibrant.export.quantization.quantizers import BlockGraph, StaticQuantizer, block_of
from calibrant.export.quantization.report import ece_lines, lines

from ..conftest import CLASSES, PREPROCESSING, PRIOR, pixels, spread

C = len(CLASSES)


class Deep(nn.Module):
    """Stem, two numbered blocks and a head: enough to leave something out of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU())
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU()) for _ in range(2)))
        self.head = nn.Linear(16, C)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(self.stem(x)).mean((2, 3)))
        return out


class Mixer(nn.Module):
    """Matrix products only, as a transformer has them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, C)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(nn.functional.avg_pool2d(x, 4).flatten(1)))
        return out


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("quantize") / "cnn.onnx"
    export_onnx(
        spread(Deep()), path, class_names=CLASSES, preprocessing=PREPROCESSING, train_prior=PRIOR, adjust=1.0,
        calibrator=Calibrator("temperature", C, {"temperature": 2.0}),
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def data(cnn: Path) -> Data:
    images = pixels(96, seed=1)
    p = softmax(session(cnn).run(["logits"], {"images": images})[0])
    rng = np.random.default_rng(0)
    labels = np.array([rng.choice(C, p=row / row.sum()) for row in p])
    return Data(pixels(32, seed=2), images, labels)


def answers(path: Path, images: NDArray[np.uint8]) -> NDArray[np.float64]:
    return np.asarray(session(path).run(["probabilities"], {"images": images})[0], np.float64)


def test_static_file_is_smaller_close_and_still_editable(cnn: Path, data: Data, tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    result = quantize(cnn, out, data, seconds=0.02)
    names = [t.name for t in result.candidates]
    assert names[:4] == ["float32", "int8, one scale per tensor", "int8 per channel, nearest", "int8 per channel"]
    assert {t.quality.rows for t in result.candidates if t.quality} == {96}  # each half with the other's temperature
    assert set(result.sensitivity) == {"stem.0", "blocks.0.0", "blocks.1.0"}
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    ops = [n.op_type for n in model.graph.node]
    assert "QuantizeLinear" in ops
    assert ops[-2:] == ["Gemm", "Softmax"]  # the tail is float and as it was
    assert [op for op in ops if op != "DequantizeLinear"][:4] == ["Transpose", "Cast", "Mul", "Add"]
    q = answers(out, data.images)
    np.testing.assert_allclose(q.sum(1), 1, atol=1e-6)
    assert result.chosen.agreement > 0.9
    card = OnnxFile.open(out).card()
    assert card.precision["dtype"] == "int8"
    assert card.precision["after"]["setting"] == result.chosen.name
    assert card.metrics["images_per_second"] == pytest.approx(8 / result.chosen.cost.large, rel=0.01)
    assert card.prior.total == 1.0
    assert card.calibrator is not None
    assert card.calibrator["parameters"]["temperature"] == pytest.approx(2.0 * result.chosen.temperature)
    before = session(out).run(["logits"], {"images": data.images})[0]
    edit.adjust(out, 0.0)
    after = session(out).run(["logits"], {"images": data.images})[0]
    np.testing.assert_allclose(after - before, np.tile(np.log(np.array(PRIOR) * C), (96, 1)), atol=1e-4)
    text = "\n".join(lines(result, out))
    for name in names:
        assert name in text
    base, after = result.candidates[0].quality, result.chosen.quality
    assert base is not None
    assert after is not None
    assert "\n".join(ece_lines(base, after)) in text
    assert card.precision["after"]["ece_in_float_interval"] == after.ece_place(base)
    assert card.precision["before"]["ece_difference"] == [0.0, 0.0, 0.0]
    with pytest.raises(ModelError, match="is int8 already"):
        quantize(out, tmp_path / "again.onnx", data)


@pytest.mark.parametrize("nearest", [False, True])
def test_int8_file_holds_the_rounded_weights(cnn: Path, data: Data, tmp_path: Path, nearest: bool) -> None:
    quantizer = StaticQuantizer(BlockGraph.of(onnx.load(cnn)), data.calibration)
    quantizer.write(tmp_path / "q.onnx", float_blocks=["blocks.0.0"], nearest=nearest)
    graph = onnx.load(tmp_path / "q.onnx").graph
    arrays = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in graph.initializer}
    makers = {n.output[0]: n for n in graph.node}
    gaps = {}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1] in makers:
            q, scale, zero = (arrays[name] for name in makers[node.input[1]].input)
            steps = quantizer.weights[node.name] / scale[:, None, None, None]
            gaps[node.name] = float(np.abs(q - steps).max())
            assert not zero.any()
    assert len(gaps) == 2  # the float block is not among them
    assert max(gaps.values()) > 0.9 if nearest else max(gaps.values()) < 1e-3


def test_refit_brings_back_a_temperature_that_was_off(cnn: Path, data: Data, tmp_path: Path) -> None:
    # labels were drawn from the file's own probabilities at T = 2: at T = 4 the factor must come out near a half
    wrong = tmp_path / "wrong.onnx"
    edit.adjust(cnn, 0.0, out=wrong)
    images = np.concatenate([data.images, pixels(600, seed=5)])
    p = answers(wrong, images)
    rng = np.random.default_rng(1)
    labels = np.array([rng.choice(C, p=row / row.sum()) for row in p])
    edit.recalibrate(wrong, Calibrator("temperature", C, {"temperature": 4.0}))
    result = quantize(wrong, tmp_path / "q.onnx", Data(data.calibration, images, labels), keep_float=[], seconds=0.02)
    assert result.chosen.temperature == pytest.approx(0.5, rel=0.25)
    unlabelled = Data(data.calibration, images)
    result = quantize(wrong, tmp_path / "u.onnx", unlabelled, keep_float=[], seconds=0.02)
    assert result.chosen.temperature == pytest.approx(1.0, rel=0.1)  # the float file is the teacher
    assert result.chosen.quality is None


def test_matrix_products_go_the_dynamic_way(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    export_onnx(spread(Mixer()), path, class_names=CLASSES, preprocessing=PREPROCESSING)
    images = pixels(32, seed=3)
    result = quantize(path, out, Data(pixels(16), images), seconds=0.02)
    assert result.chosen.name == "dynamic int8"
    assert "MatMulInteger" in [n.op for n in OnnxFile.open(out).nodes]
    assert np.abs(answers(path, images) - answers(out, images)).max() < 0.05
    with pytest.raises(ConfigError, match="does not apply to dynamic"):
        quantize(path, out, Data(images, images), keep_float=["a"], seconds=0.02)


def test_half_precision_keeps_float_at_both_ends(cnn: Path, data: Data, tmp_path: Path) -> None:
    out = tmp_path / "half.onnx"
    result = quantize(cnn, out, Data(data.calibration, data.images), method="fp16", seconds=0.02)
    file = OnnxFile.open(out)
    assert file.initializers["calibrant/head.weight"].dtype == 1
    assert 10 in {t.dtype for t in file.initializers.values()}
    assert np.abs(answers(cnn, data.images) - answers(out, data.images)).max() < 5e-3
    assert "GPUs" in result.warnings[0]


def candidate(name: str, error: float, cost: float, gap: float = 0.0) -> Candidate:
    z = np.zeros((2, 2))
    return Candidate(name, (), z, None, np.zeros(2), error, gap, 0.9, 0.9, 1.0, Cost(cost, cost))


def test_choice_wants_the_least_error_at_nine_tenths_of_the_best_speed() -> None:
    fast, good, slow = candidate("fast", 0.2, 1.0), candidate("good", 0.1, 1.05), candidate("slow", 0.05, 1.5)
    assert choose([fast, good, slow]).name == "good"
    assert choose([fast, replace(good, level_gap=0.5), slow]).name == "fast"
    with pytest.raises(CheckFailed, match="error of fast changes by 80 %"):
        choose([replace(fast, level_gap=0.8)])


def test_ridge_finds_a_linear_error_and_leaves_noise_alone() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(200, 30)), rng.normal(size=(4, 30))
    weight, bias = ridge(x, x @ w.T + 3.0)
    assert weight is not None
    fresh = rng.normal(size=(50, 30))
    np.testing.assert_allclose(fresh @ weight.T + bias, fresh @ w.T + 3.0, atol=0.3)
    weight, bias = ridge(x, rng.normal(size=(200, 4)) + 3.0)
    assert weight is None
    np.testing.assert_allclose(bias, 3.0, atol=0.3)


def test_agreement_and_error_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.52, 0.48], [0.1, 0.9]])
    z, other = np.log(p), np.log(p[:, ::-1])
    mixed = np.stack([z[0], other[1], z[2]])
    assert agreement(mixed, z, p) == (pytest.approx(2 / 3), 1.0)
    assert rmse(z + 5.0, z) == pytest.approx(0.0, abs=1e-12)
    assert rmse(z + np.array([1.0, -1.0]), z) == pytest.approx(1.0)


def test_ece_is_placed_like_with_like_as_measured_and_paired() -> None:
    def found(value: float, freed: float, low: float, high: float, difference: tuple[float, float, float]) -> Quality:
        return Quality((0.7, 0.7, 0.7), (value, low, high), (1.0, 1.0, 1.0), freed, difference, 100)

    base = found(0.012, 0.0, 0.0, 0.014, (0.0, 0.0, 0.0))
    noisy = found(0.022, 0.010, 0.0, 0.025, (0.009, -0.004, 0.022))
    assert noisy.ece_place(base) == {"freed": "within", "measured": "above", "paired": "within"}
    wrong = found(0.06, 0.058, 0.045, 0.07, (0.048, 0.03, 0.066))
    assert set(wrong.ece_place(base).values()) == {"above"}
    assert set(base.ece_place(wrong).values()) == {"below", "within"}  # the base's own difference is 0
    text = "\n".join(ece_lines(base, noisy))
    assert "measured 1.20 and 2.20, freed of noise 0.00 and 1.00; float32's true ECE lies in 0.00 .. 1.40" in text
    assert "freed one lies within that interval; as measured, with its noise, it lies above" in text
    assert "+0.90 (-0.40 .. +2.20), no clear change" in text
    assert "+4.80 (+3.00 .. +6.60), clearly larger" in "\n".join(ece_lines(base, wrong))


def test_quality_beside_the_float_probabilities() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 5)) * 2
    p = softmax(z)
    labels = (p.cumsum(1) > rng.random((3000, 1))).argmax(1)
    base = quality(p, labels, p)
    assert base.ece_difference == (0.0, 0.0, 0.0)
    assert base.ece_freed < base.ece[0]
    assert set(base.ece_place(base).values()) == {"within"}
    sharper = quality(softmax(2 * z), labels, p)
    assert sharper.accuracy == base.accuracy
    assert sharper.ece_difference[0] == pytest.approx(sharper.ece[0] - base.ece[0])
    assert set(sharper.ece_place(base).values()) == {"above"}


def test_blocks_are_named_as_the_network_names_them() -> None:
    def named(path: str) -> str | None:
        node = onnx.NodeProto(op_type="Conv")
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', 'network', '{path}', 'conv2d']")
        return block_of(node)

    assert named("network.network.blocks.0.1.conv_pw") == "blocks.0.1"
    assert named("network.stages.2.blocks.3.conv_dw") == "stages.2.blocks.3"
    assert named("network.layer1.0.downsample.1") == "layer1.0"
    assert named("network.conv_stem") == "conv_stem"
    assert block_of(onnx.NodeProto(op_type="Conv")) is None


def test_blocks_of_a_foreign_file_are_read_from_its_nodes_names() -> None:
    for name, block in {
        "/layer2/layer2.0/downsample/downsample.0/Conv": "layer2.0", "/conv1/Conv": "conv1",
        "/blocks/blocks.0/blocks.0.1/conv_dw/Conv": "blocks.0.1", "/network/stem/Conv": "network",
        "/network/features/features.3/conv/conv.0/conv.0.0/Conv": "features.3", "node_3_Conv": None, "": None,
    }.items():  # fmt: skip
        assert block_of(onnx.NodeProto(op_type="Conv", name=name)) == block


class Lone(nn.Module):
    """One block: with it in float nothing would be quantized. Its linear layer is the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(16, C)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.conv(x).mean((2, 3)))
        return out


def test_a_network_in_float_is_never_called_int8(cnn: Path, data: Data, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, out = tmp_path / "lone.onnx", tmp_path / "q.onnx"
    export_onnx(spread(Lone()), path, class_names=CLASSES, preprocessing=PREPROCESSING)
    result = quantize(path, out, data, seconds=0.02)
    assert [t.name for t in result.candidates if t.float_blocks] == []
    assert "QuantizeLinear" in [n.op for n in OnnxFile.open(out).nodes]
    with pytest.raises(ConfigError, match="keeps every block"):
        quantize(path, tmp_path / "k.onnx", data, keep_float=["conv.0"], seconds=0.02)
    with pytest.raises(ModelError, match="nothing of it was quantized.*choose static"):
        quantize(path, tmp_path / "d.onnx", data, method="dynamic", seconds=0.02)
    everything = set(BlockGraph.of(onnx.load(cnn)).blocks)
    assert all(set(t.float_blocks) != everything for t in quantize(cnn, out, data, seconds=0.02).candidates)


def test_winners_that_verify_would_not_accept_are_told(
    cnn: Path, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "choose", lambda found: replace(found[0], agreement=0.93, clear_agreement=0.995))
    result = quantize(cnn, tmp_path / "q.onnx", data, keep_float=[], seconds=0.02)
    assert "93.0 % of the images and 99.5 % of the clear ones; `calibrant verify` asks 96 and 99" in result.warnings[0]
    monkeypatch.setattr(module, "choose", lambda found: replace(found[0], agreement=0.97, clear_agreement=0.995))
    assert not quantize(cnn, tmp_path / "q.onnx", data, keep_float=[], seconds=0.02).warnings


def test_folders_and_wrong_settings(cnn: Path, tmp_path: Path) -> None:
    for k, name in enumerate(CLASSES[:2]):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i, image in enumerate(pixels(15, seed=k)):
            Image.fromarray(image).save(tmp_path / "data" / name / f"{i}.png")
    out = tmp_path / "q.onnx"
    result = quantize_folders(cnn, out, tmp_path / "data", None, samples=12, keep_float=["blocks.0.0"])
    assert result.chosen.quality is not None
    assert result.chosen.quality.rows == 20  # the ten for the ranges are not in the table
    assert out.exists()
    known = BlockGraph.of(onnx.load(cnn)).blocks
    assert "blocks.0.0" in known
    cases: list[tuple[dict[str, object], str]] = [
        ({"method": "int4"}, 'unknown setting "int4"'), ({"ranges": "max"}, "minmax"),
        ({"keep_float": ["blocks.0.9"]}, 'did you mean "blocks.0.0"'),
    ]  # fmt: skip
    for options, message in cases:
        with pytest.raises(CalibrantError, match=message):
            quantize_folders(cnn, out, tmp_path / "data", None, **options)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least 8 images"):
        quantize(cnn, out, Data(pixels(4), pixels(4)))
