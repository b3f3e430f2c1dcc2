from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibrant.errors import FormatError
from calibrant.serve.engine import providers
from calibrant.serve.engine.session import Session


@pytest.mark.parametrize(
    ("seconds", "cap"),
    [
        ({1: 5.0, 2: 10.2, 4: 23.0, 8: 52.0, 16: 110.0}, 1),  # batching slows it, as it does CNNs on a CPU
        ({1: 5.0, 2: 6.0, 4: 8.0, 8: 12.0, 16: 20.0, 32: 36.0, 64: 68.0}, 64),  # a cost per run
        ({1: 5.0, 2: 6.0, 4: 8.0, 8: 15.9, 16: 31.8, 32: 63.6, 64: 127.0}, 4),  # flat from 4 on: no latency for nothing
    ],
)
def test_the_cap_is_the_smallest_batch_near_the_best_rate(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], cap: int
) -> None:
    session = Session(model_file, threads=1)
    monkeypatch.setattr(session, "_best_time", lambda one, rows, *, deadline: seconds[rows] / 1000)
    assert session.warm_up(budget=60) == cap


def test_measuring_stops_when_larger_batches_only_get_worse(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(model_file, threads=1)
    tried: list[int] = []

    def slow(one: Any, rows: int, *, deadline: float) -> float:
        tried.append(rows)
        return 0.001 * rows**1.5

    monkeypatch.setattr(session, "_best_time", slow)
    session.warm_up(budget=60)
    assert tried == [1, 2, 4]


def test_the_curve_is_measured_on_the_real_file(model_file: Path) -> None:
    session = Session(model_file, threads=1)
    session.warm_up()
    assert session.cap in [p.rows for p in session.curve.points]
    assert all(p.seconds > 0 for p in session.curve.points)
    assert session.seconds_per_row > 0


FREED = """
import sys
import psutil
from calibrant.serve.engine.session import Session
session = Session(sys.argv[1], threads=1)
for rows in (1, 64):
    session.run(session.blank(rows))
large = psutil.Process().memory_info().rss
session.warm_up(max_rows=1)
print(large - psutil.Process().memory_info().rss)
"""


def test_measuring_large_batches_leaves_no_memory_behind(tmp_path: Path) -> None:
    """A convolution of 64 channels on 64 x 64: a batch of 64 needs 64 MiB for its result alone."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["images", "w"], ["wide"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["wide"], ["mean"]), helper.make_node("Flatten", ["mean"], ["logits"]),
    ]  # fmt: skip
    image = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 64, 64])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 64])
    w = numpy_helper.from_array(np.zeros((64, 3, 3, 3), np.float32), "w")
    model = helper.make_model(
        helper.make_graph(nodes, "wide", [image], [logits], [w]), opset_imports=[helper.make_opsetid("", 18)]
    )
    model.ir_version = 8
    onnx.save(model, tmp_path / "wide.onnx")
    # in a process of its own: what other tests left in this one would be reused or given back meanwhile
    done = subprocess.run([sys.executable, "-c", FREED, str(tmp_path / "wide.onnx")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40 << 20


def test_a_file_of_fixed_batch_is_not_batched(tmp_path: Path, tiny: ModuleType) -> None:
    session = Session(tiny.write(tmp_path / "m.onnx", batch=4), threads=1)
    session.warm_up()
    assert not session.batched
    assert (session.fixed_rows, session.cap) == (4, 1)


def test_callers_may_send_any_number_of_rows_to_a_deployed_file_of_fixed_batch(
    tmp_path: Path, tiny: ModuleType
) -> None:
    import onnx

    inputs, outputs, free = Session(tiny.write(tmp_path / "m.onnx", batch=4), threads=1).asked()
    assert free
    assert {s.shape[0] for s in [*inputs.values(), *outputs.values()] if not s.optional} == {-1}
    plain = onnx.load(str(tmp_path / "m.onnx"))
    del plain.metadata_props[:]  # of a file that says nothing, the first axis may be anything
    onnx.save(plain, str(tmp_path / "bare.onnx"))
    inputs, _, free = Session(tmp_path / "bare.onnx", threads=1).asked()
    assert not free
    assert {s.shape[0] for s in inputs.values() if not s.optional} == {4}


def test_metadata_that_was_changed_by_hand_is_refused(tmp_path: Path, model_file: Path) -> None:
    path = tmp_path / "edited.onnx"
    path.write_bytes(model_file.read_bytes().replace(b'"dunlin"', b'"dodo!!"'))
    with pytest.raises(FormatError, match="does not match its own hash"):
        Session(path)


def test_without_a_gpu_the_cpu_is_taken_whatever_the_build_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(providers, "has_cuda_device", lambda: False)
    assert [name for name, _ in providers.choose(None, listed)] == ["CPUExecutionProvider"]
    monkeypatch.setattr(providers, "has_cuda_device", lambda: True)
    assert [name for name, _ in providers.choose(None, listed)] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert providers.choose(["tensorrt"], listed)[0][0] == "TensorrtExecutionProvider"


def test_openvino_is_told_to_keep_float32() -> None:
    chosen = providers.choose(None, ["OpenVINOExecutionProvider", "CPUExecutionProvider"])
    assert chosen[0][0] == "OpenVINOExecutionProvider"
    assert "f32" in chosen[0][1]["load_config"]


def test_stderr_stays_quiet_while_a_file_is_loaded(model_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    session = Session(model_file)
    session.run({"images": np.zeros((1, 16, 16, 3), np.uint8)})
    assert capfd.readouterr().err == ""
