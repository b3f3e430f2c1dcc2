from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration.softmax import softmax
from calibrant.errors import CheckFailed, ConfigError, DataError, FormatError, ModelError
from calibrant.export import export_onnx
from calibrant.export.checks.parity import Tolerance, session
from calibrant.export.graph import saving
from calibrant.images.preprocessing import Preprocessing

from .conftest import CLASSES, PREPROCESSING, PRIOR, TinyNet, pixels, spread

Export = Callable[..., tuple[Path, ModelCard]]


def test_file_says_what_torch_says_at_any_batch(deployed: Path, tiny: nn.Module) -> None:
    x = pixels(17, seed=5)
    with torch.inference_mode():
        z = tiny(torch.from_numpy(PREPROCESSING.normalise(x))).numpy()
    run = session(deployed)
    for batch in (1, 2, 3, 17):
        p, logits, features = run.run(["probabilities", "logits", "features"], {"images": x[:batch]})
        np.testing.assert_allclose(logits, z[:batch], atol=2e-5)
        np.testing.assert_allclose(p, softmax(z[:batch]), atol=2e-6)
        assert features.shape == (batch, 16)


def test_prologue_transposes_bytes_before_the_cast(deployed: Path) -> None:
    assert [n.op for n in OnnxFile.open(deployed).nodes][:4] == ["Transpose", "Cast", "Mul", "Add"]


def test_folding_adds_no_node(deployed: Path, exported: Export) -> None:
    path, _ = exported(
        class_temperatures=[0.5, 1, 1, 2, 3], adjust=1.0, outputs=("probabilities", "logits", "features")
    )
    assert [n.op for n in OnnxFile.open(path).nodes] == [n.op for n in OnnxFile.open(deployed).nodes]


def test_file_is_valid_onnx_and_old_runtimes_can_read_it(deployed: Path) -> None:
    model = onnx.load(deployed)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    assert {o.domain: o.version for o in model.opset_import}[""] == 18
    assert b"/tests/" not in deployed.read_bytes()  # no path of the machine that exported


def test_card_holds_the_total_and_what_training_absorbed(exported: Export) -> None:
    _, card = exported(adjust=1.5, absorbed=1.0)
    assert (card.prior.total, card.prior.absorbed, card.prior.applied) == (1.5, 1.0, 0.5)
    _, card = exported(absorbed=1.0)
    assert (card.prior.total, card.prior.applied) == (1.0, 0.0)


def test_head_without_bias_gains_one(exported: Export) -> None:
    network = spread(TinyNet(bias=False))
    path, card = exported(network, adjust=1.0)
    np.testing.assert_allclose(
        OnnxFile.open(path).array(card.head.weight if card.head else ""), network.head.weight.detach(), rtol=1e-6
    )  # fmt: skip
    np.testing.assert_allclose(
        OnnxFile.open(path).array("calibrant/head.bias"), -np.log(np.array(PRIOR) * 5), rtol=1e-5
    )


class Cosine(TinyNet):
    def forward(self, x: Tensor) -> Tensor:
        normed = nn.functional.normalize(self.features(x), dim=1)
        return 20.0 * nn.functional.linear(normed, nn.functional.normalize(self.head.weight, dim=1))


class ConvHead(TinyNet):
    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Conv2d(16, len(CLASSES), 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x)[:, :, None, None]).flatten(1)


class TwoHeads(TinyNet):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(16, len(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        f = self.features(x)
        return (self.head(f) + self.second(f)) / 2


class Clamped(TinyNet):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-4, 4)


class WithFeatures(TinyNet):
    def forward(self, x: Tensor) -> Any:
        f = self.features(x)
        return self.head(f), f * 2


@pytest.mark.parametrize(
    ("network", "kind"),
    [(Cosine, "gemm"), (ConvHead, "gemm"), (TwoHeads, "gemm"), (Clamped, "logits"), (WithFeatures, "gemm")],
)
def test_every_kind_of_head_says_what_torch_says(
    exported: Export, network: type[TinyNet], kind: str
) -> None:  # the comparison runs inside export_onnx and fails it
    torch.manual_seed(1)
    path, card = exported(network(), class_temperatures=[0.5, 1, 1, 2, 3], adjust=1.0, images=pixels(16))
    assert card.head is not None
    assert card.head.kind == kind
    assert card.verify is not None
    assert card.verify["passed"]
    gemms = [n for n in OnnxFile.open(path).nodes if n.op in ("Gemm", "MatMul", "Conv")]
    assert len(gemms) == 2 + (kind == "gemm") + (network is Clamped)


def test_features_of_the_network_are_put_out_not_the_head_input(exported: Export) -> None:
    torch.manual_seed(1)
    network = WithFeatures().eval()
    path, _ = exported(network, outputs=("probabilities", "logits", "features"))
    x = pixels(4)
    with torch.inference_mode():
        _, f = network(torch.from_numpy(PREPROCESSING.normalise(x)))
    np.testing.assert_allclose(session(path).run(["features"], {"images": x})[0], f, atol=1e-5)


def test_float_input_is_nchw(exported: Export, tiny: nn.Module) -> None:
    path, card = exported(input="float32")
    assert (card.input.dtype, card.input.layout) == ("float32", "NCHW")
    x = PREPROCESSING.normalise(pixels(3))
    with torch.inference_mode():
        np.testing.assert_allclose(
            session(path).run(["logits"], {"images": x})[0], tiny(torch.from_numpy(x)), atol=2e-5
        )


class DataDependent(TinyNet):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.gate(super().features(x))
        return out


class Gate(nn.Module):
    def forward(self, f: Tensor) -> Tensor:
        return f * 2 if f.sum() > 0 else f


class FixedBatch(TinyNet):
    def features(self, x: Tensor) -> Tensor:
        return super().features(x).reshape(2, 16)


def test_data_dependent_network_is_named_by_module(exported: Export, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="depends on the data in module gate"):
        exported(DataDependent())
    assert not (tmp_path / "model.onnx").exists()


def test_fixed_batch_is_refused(exported: Export) -> None:
    with pytest.raises(ModelError, match="batch size is fixed"):
        exported(FixedBatch())


def test_failed_comparison_keeps_the_file_under_another_name(exported: Export, tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"model\.failed\.onnx.*differ by") as caught:
        exported(tolerance=Tolerance(0.0, 0.0))
    assert caught.value.exit_code == 1
    assert (tmp_path / "model.failed.onnx").exists()
    assert not (tmp_path / "model.onnx").exists()


def test_an_older_file_survives_a_failed_export(exported: Export, tmp_path: Path) -> None:
    path, _ = exported()
    before = path.read_bytes()
    with pytest.raises(CheckFailed):
        exported(tolerance=Tolerance(0.0, 0.0))
    with pytest.raises(ModelError):
        exported(DataDependent())
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_a_failed_file_keeps_its_weights_beside_it(
    exported: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    monkeypatch.setattr(saving, "LARGEST", 0)  # as if protobuf's limit were reached
    exported()
    before = (tmp_path / "model.onnx.data").read_bytes()
    with pytest.raises(CheckFailed):
        exported(tolerance=Tolerance(0.0, 0.0))
    (tmp_path / "model.onnx").unlink()
    assert (tmp_path / "model.onnx.data").read_bytes() == before
    (tmp_path / "model.onnx.data").unlink()
    assert session(tmp_path / "model.failed.onnx").run(["probabilities"], {"images": pixels(2)})[0].shape == (2, 5)


def test_class_of_prior_zero_is_refused_by_name_or_smoothed(exported: Export) -> None:
    prior = (0.5, 0.3, 0.2, 0.0, 0.0)
    with pytest.raises(ConfigError, match="training prior of elm, fir is 0"):
        exported(train_prior=prior, adjust=1.0)
    path, card = exported(train_prior=prior, adjust=1.0, prior_floor=1e-3)
    assert min(card.prior.train or ()) == pytest.approx(1e-3 / 1.002)
    assert np.isfinite(session(path).run(["probabilities"], {"images": pixels(4)})[0]).all()


def test_target_prior_of_zero_rules_a_class_out(exported: Export) -> None:
    path, _ = exported(target_prior=(0.5, 0.5, 0, 0, 0), adjust=1.0)
    p = session(path).run(["probabilities"], {"images": pixels(8)})[0]
    assert np.isfinite(p).all()
    assert p[:, 2:].max() < 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ("a", "b"), "train_prior": None}, "5 outputs but there are 2 class names"),
        ({"class_names": ("a",) * 5}, "5 class names with 1 different"),
        ({"class_temperatures": [1, 1, 1, 1]}, "class temperatures must be 5 positive"),
        ({"class_temperatures": [1, 1, 0, 1, 1]}, "class temperatures must be 5 positive"),
        ({"train_prior": None, "adjust": 1.0}, "needs the training prior"),
        ({"target_prior": PRIOR}, "without a strength"),
        ({"train_prior": (0.5, 0.5)}, "must be 5 shares"),
        ({"gauge": "media"}, 'unknown gauge "media"; did you mean "mean"'),
        ({"knobs": "run-time"}, 'unknown knobs "run-time"; did you mean "runtime"'),
        ({"outputs": ("probabilities",)}, "must contain logits"),
        ({"outputs": ("logits", "probs")}, 'unknown output "probs"'),
        ({"outputs": ("logits", "ood_score")}, "needs a kind"),
        ({"ood": {"kind": "enrgy"}}, 'did you mean "energy"'),
        ({"ood": {"kind": "feature-norm"}}, "needs the mean and spread of training norms, got mu None"),
        ({"ood": {"kind": "feature-norm", "mu": 1.0, "sd": -0.001}}, "got mu 1.0, sd -0.001"),
        ({"ood": {"kind": "feature-norm", "mu": float("nan"), "sd": 1.0}}, "got mu nan"),
        ({"outputs": ("logits", "logits")}, '"logits" is named twice'),
        ({"input": "uint16"}, 'unknown input "uint16"; did you mean "uint8"'),
        ({"opset": 17}, "opset 17 cannot be written; give 18 to"),
        ({"opset": 99}, "opset 99 cannot be written"),
        ({"abstain_below": 7.0}, "a threshold is a probability, got 7.0"),
        ({"abstain_below": float("nan")}, "a threshold is a probability, got nan"),
        ({"class_names": ["a", "b", " ", "d", "e"]}, "a class name is empty"),
        ({"class_names": ["a", "b", "\udcff", "d", "e"]}, r"'\\udcff' is not valid Unicode"),
        ({"adjust": 1.0, "absorbed": float("nan")}, "absorbed in training is nan"),
        ({"train_prior": (1, 0, 0, 0, 0), "adjust": 1.0, "prior_floor": 0.0}, "a share between 0 and 1, got 0"),
        ({"prior_floor": -1.0}, "a share between 0 and 1"),
        ({"target_prior": (0, 0, 0, 0, 0), "adjust": 1.0}, "not negative and not all 0"),
    ],
)
def test_wrong_options_are_named(exported: Export, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ModelError), match=message):
        exported(**options)


def test_class_names_may_be_numbers_and_outputs_stand_in_their_order(exported: Export) -> None:
    path, card = exported(class_names=np.arange(5), outputs=("logits", "probabilities"), comparison=None)
    assert card.classes == ("0", "1", "2", "3", "4")
    assert card.outputs == tuple(o.name for o in session(path).get_outputs())


def test_callers_module_is_left_alone(tmp_path: Path) -> None:
    network = TinyNet().train()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    export_onnx(network, tmp_path / "m.onnx", class_names=CLASSES, preprocessing=PREPROCESSING, comparison=None)
    assert network.training
    assert all(p.requires_grad for p in network.parameters())
    assert all(torch.equal(v, network.state_dict()[k]) for k, v in before.items())


def test_weights_beyond_two_gigabytes_go_beside_the_file_and_follow_edits(
    exported: Export, monkeypatch: pytest.MonkeyPatch, deployed: Path, tmp_path: Path
) -> None:
    from calibrant.export import edit

    monkeypatch.setattr(saving, "LARGEST", 0)  # as if protobuf's limit were reached
    path, _ = exported()
    data = tmp_path / "model.onnx.data"
    assert data.is_file()
    x = {"images": pixels(3)}
    expected = session(deployed).run(["logits"], x)[0]
    np.testing.assert_allclose(session(path).run(["logits"], x)[0], expected, atol=1e-6)
    other = tmp_path / "elsewhere"
    other.mkdir()
    edit.adjust(path, 1.0, out=other / "model.onnx")
    np.testing.assert_allclose(
        session(other / "model.onnx").run(["logits"], x)[0], expected - np.log(np.array(PRIOR) * 5), atol=1e-5
    )
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "model.onnx.data").write_bytes(b"of another model")
    with pytest.raises(DataError, match="taken/model.onnx.data: is the weights file of another model"):
        edit.adjust(path, 1.0, out=taken / "model.onnx")
    content = bytearray(data.read_bytes())
    content[3] ^= 1
    data.write_bytes(content)
    with pytest.raises(FormatError, match="do not match the hash"):
        edit.adjust(path, 1.0)
    data.unlink()
    with pytest.raises(FormatError, match=r"weights file model\.onnx\.data is missing"):
        edit.adjust(path, 1.0)


def test_token_reduced_transformer_says_what_torch_says(exported: Export) -> None:
    import timm

    from calibrant.train.vit import reduce_tokens

    torch.manual_seed(0)
    plain = timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=64, patch_size=8, depth=4)
    network = reduce_tokens(plain, "topk", keep_rate=0.5, locations=(1, 2))
    images = pixels(16, seed=1, size=(64, 64))
    _, card = exported(network, preprocessing=Preprocessing((64, 64), 64), images=images, adjust=1.0)
    assert card.verify is not None
    assert card.verify["passed"]
    assert card.head is not None
    assert card.head.kind == "gemm"
