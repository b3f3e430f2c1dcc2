from __future__ import annotations

import importlib.util
import io
import sys
import types
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image

from calibrant.artifacts.model_card import InputSpec
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import ConfigError
from calibrant.export.checks.parity import session
from calibrant.export.triton.repository import KEEPS, TritonConfig, export_triton, kserve_manifest, text
from calibrant.images.preprocessing import Crop, Preprocessing
from calibrant.serve.engine.pixels import decode

from ..conftest import CLASSES, pixels


def parsed(folder: Path) -> Any:
    """config.pbtxt by Triton's own schema, as its client ships it."""
    schema = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    return text_format.Parse((folder / "config.pbtxt").read_text(), schema.ModelConfig())


def test_repository_is_what_triton_expects(deployed: Path, tmp_path: Path) -> None:
    folder = export_triton(deployed, tmp_path, TritonConfig(max_batch=8, instances=2, threads=1, cache=True))
    config = parsed(folder)
    assert config.name == folder.name == "tiny"
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 8)
    assert [(i.name, i.data_type, list(i.dims)) for i in config.input] == [("images", 2, [16, 16, 3])]
    assert [(o.name, o.data_type, list(o.dims)) for o in config.output] == [
        ("probabilities", 11, [5]), ("logits", 11, [5]), ("features", 11, [16]),
    ]  # fmt: skip
    assert config.output[0].label_filename == "labels.txt"
    assert config.HasField("dynamic_batching")
    assert (config.instance_group[0].count, config.instance_group[0].kind) == (2, 2)
    assert config.response_cache.enable
    assert config.parameters["intra_op_thread_count"].string_value == "1"
    assert [w.batch_size for w in config.model_warmup] == [1, 8]
    assert config.model_warmup[0].inputs["images"].random_data
    assert (folder / "labels.txt").read_text().splitlines() == list(CLASSES)
    assert (folder / "1" / "model.onnx").read_bytes() == deployed.read_bytes()


def test_knobs_become_inputs_that_triton_can_batch(variant: Any, tmp_path: Path) -> None:
    path, _ = variant(knobs="runtime")
    folder = export_triton(path, tmp_path / "repo", TritonConfig(name="tiny"))
    config = parsed(folder)
    assert [(i.name, list(i.dims)) for i in config.input] == [
        ("images", [16, 16, 3]), ("temperature", [1]), ("adjust_strength", [1]), ("log_prior_ratio", [5]),
    ]  # fmt: skip
    copy = folder / "1" / "model.onnx"
    assert OnnxFile.open(copy).card().knobs == "required"
    assert OnnxFile.open(path).card().knobs == "runtime"
    ones = np.ones((3, 1), np.float32)
    knobs = {"temperature": ones, "adjust_strength": 0 * ones, "log_prior_ratio": np.zeros((3, 5), np.float32)}
    got = session(copy).run(["logits"], {"images": pixels(3), **knobs})[0]
    np.testing.assert_allclose(got, session(path).run(["logits"], {"images": pixels(3)})[0], atol=1e-6)


def test_ensemble_decodes_what_was_evaluated(deployed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = export_triton(deployed, tmp_path, TritonConfig(name="birds", ensemble=True))
    config = parsed(folder)
    assert config.platform == "ensemble"
    assert [s.model_name for s in config.ensemble_scheduling.step] == ["birds_decode", "birds_model"]
    assert dict(config.ensemble_scheduling.step[1].input_map) == {"images": "pixels"}
    assert (folder / "1" / KEEPS).stat().st_size  # git and S3 know no empty folders
    assert parsed(tmp_path / "birds_decode").backend == "python"
    assert parsed(tmp_path / "birds_model").name == "birds_model"

    class Tensor:
        def __init__(self, name: str, values: Any) -> None:
            self.name, self.values = name, values

        def as_numpy(self) -> Any:
            return self.values

    class Response:
        def __init__(self, tensors: Any = None, error: Any = None) -> None:
            self.tensors, self.error = tensors, error

    fake = types.SimpleNamespace(
        get_input_tensor_by_name=lambda request, name: request, Tensor=Tensor, InferenceResponse=Response,
        TritonError=str,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("decode", tmp_path / "birds_decode" / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8))
    data = io.BytesIO()
    picture.save(data, "PNG")
    good = Tensor("image_file", np.array([[data.getvalue()], [data.getvalue()]], dtype=object))
    bad = Tensor("image_file", np.array([[b"not an image"]], dtype=object))
    answers = module.TritonPythonModel().execute([good, bad])
    expected = Preprocessing((16, 16), 16).pixels(picture)
    np.testing.assert_array_equal(answers[0].tensors[0].values, np.stack([expected] * 2))
    assert "cannot be decoded" in answers[1].error
    for crop in get_args(Crop):
        wide = Preprocessing((12, 20), 16, crop)
        monkeypatch.setattr(module, "PREPROCESSING", wide.to_dict())
        np.testing.assert_array_equal(module.pixels(data.getvalue()), wide.pixels(picture))
    grey, data = Image.fromarray(np.full((20, 20), 0x80FF, np.uint16)), io.BytesIO()
    grey.save(data, "PNG")
    assert (module.pixels(data.getvalue()) == 0x80).all()


def test_a_queue_has_an_end(deployed: Path, tmp_path: Path) -> None:
    """timeout_action 0 is REJECT."""
    policy = parsed(export_triton(deployed, tmp_path / "a")).dynamic_batching.default_queue_policy
    assert (policy.timeout_action, policy.default_timeout_microseconds, policy.max_queue_size) == (0, 30_000_000, 0)
    assert policy.allow_timeout_override
    config = TritonConfig(queue_timeout_us=0, queue_size=64, queue_delay_us=500, ensemble=True, name="m")
    for name in ("m_model", "m_decode"):
        export_triton(deployed, tmp_path / "b", config)
        batching = parsed(tmp_path / "b" / name).dynamic_batching
        assert batching.default_queue_policy.max_queue_size == 64
        assert batching.default_queue_policy.default_timeout_microseconds == 0


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("knobs", ["baked", "runtime"])
def test_an_ensemble_of_any_file_answers_as_the_file_does(
    dtype: str, knobs: str, exported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two steps by hand, along the maps of the configuration."""
    path, _ = exported(input=dtype, knobs=knobs)
    folder = export_triton(path, tmp_path / "repo", TritonConfig(name="m", ensemble=True))
    whole, decoder = parsed(folder), parsed(tmp_path / "repo" / "m_decode")
    card = OnnxFile.open(path).card()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8))
    data = io.BytesIO()
    picture.save(data, "PNG")
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", types.SimpleNamespace())  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("decode", tmp_path / "repo" / "m_decode" / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images = module.model_input(np.stack([module.pixels(data.getvalue())] * 2))
    assert list(images.shape[1:]) == list(decoder.output[0].dims)
    assert decoder.output[0].data_type == {np.dtype("u1"): 2, np.dtype("f4"): 11}[images.dtype]
    np.testing.assert_array_equal(images, decode(card, [("a", data.getvalue())] * 2, max_pixels=10**6))
    dims = {i.name: list(i.dims) for i in whole.input if i.name != "image_file"}
    assert bool(dims) == (knobs == "runtime")
    values = {name: np.full((2, *d), 2.0 if name == "temperature" else 0.0, np.float32) for name, d in dims.items()}
    known = {"pixels": images, **values}
    step = whole.ensemble_scheduling.step[1]
    feeds = {inner: known[outer] for inner, outer in step.input_map.items()}
    model = tmp_path / "repo" / "m_model" / "1" / "model.onnx"
    got = session(model).run(["logits"], feeds)[0]
    wanted = session(path).run(["logits"], {card.input.name: images, **values})[0]
    np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_rows_of_numbers_have_nothing_to_decode(variant: Any, tmp_path: Path) -> None:
    path, _ = variant(input=InputSpec("images", "float32", "NF"))
    with pytest.raises(ConfigError, match="rows of numbers"):
        export_triton(path, tmp_path / "repo", TritonConfig(ensemble=True))


def test_class_names_stay_on_one_line_and_strings_are_escaped(deployed: Path, tmp_path: Path) -> None:
    from calibrant.export import edit

    path = tmp_path / "m.onnx"
    edit.relabel(deployed, ["a\nb", 'say "x"', "ü", "d", "e"], out=path)
    folder = export_triton(path, tmp_path / "r", TritonConfig(name="m"))
    assert (folder / "labels.txt").read_text().splitlines() == ["a b", 'say "x"', "ü", "d", "e"]
    assert text({"k": 'a"b\\c'}) == 'k: "a\\"b\\\\c"\n'


def test_wrong_options_are_named(deployed: Path, variant: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a model name"):
        export_triton(deployed, tmp_path, TritonConfig(name="a/b"))
    with pytest.raises(ConfigError, match="is not a model name"):
        export_triton(deployed, tmp_path / "repository", TritonConfig(name=".."))
    for what in ("queue_delay_us", "queue_timeout_us", "queue_size"):
        with pytest.raises(ConfigError, match="-5 is below 0"):
            export_triton(deployed, tmp_path, TritonConfig(**{what: -5}))
    with pytest.raises(ConfigError, match="threads must be at least 1"):
        export_triton(deployed, tmp_path, TritonConfig(threads=0))
    assert not list(tmp_path.glob("*/1"))
    with pytest.raises(ConfigError, match="at least 1"):
        export_triton(deployed, tmp_path, TritonConfig(max_batch=0))


def test_kserve_manifest_names_what_kubernetes_accepts() -> None:
    manifest = kserve_manifest("My_Birds.v2", "s3://models/birds", gpu=True)
    lines = [line.strip() for line in manifest.splitlines()]
    assert "name: my-birds-v2" in lines
    assert 'storageUri: "s3://models/birds"' in lines
    assert 'nvidia.com/gpu: "1"' in lines
    assert "name: model-9" in kserve_manifest("9", "pvc://x")
