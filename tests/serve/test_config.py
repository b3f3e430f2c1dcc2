from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibrant.errors import ConfigError
from calibrant.serve.config import ModelSpec, ServeConfig, Share
from calibrant.serve.http.prometheus import Exposition
from calibrant.serve.models.folder import version_key
from calibrant.serve.models.statistics import BOUNDS, Histogram
from calibrant.serve.monitor.config import MonitorConfig


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("m.onnx", ModelSpec(Path("m.onnx"))),
        ("birds=m.onnx", ModelSpec(Path("m.onnx"), "birds")),
        ("birds@12=a/m.onnx", ModelSpec(Path("a/m.onnx"), "birds", "12")),
        ("a=b=c.onnx", ModelSpec(Path("b=c.onnx"), "a")),
    ],
)
def test_a_model_may_bring_its_name_and_version(text: str, wanted: ModelSpec) -> None:
    assert ModelSpec.parse(text) == wanted


def test_a_path_that_exists_is_a_path_even_with_an_equals_sign(tmp_path: Path) -> None:
    path = tmp_path / "lr=1.onnx"
    path.touch()
    assert ModelSpec.parse(str(path)) == ModelSpec(path)


@pytest.mark.parametrize("text", ["birds=0.1", "birds@2", "birds@2=0", "birds@2=1.5", "birds@2=1.2.3"])
def test_a_share_must_be_complete_and_possible(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME@VERSION=SHARE"):
        Share.parse(text, "--canary")
    assert Share.parse("birds@2=0.25", "--canary") == Share("birds", "2", 0.25)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tls_key": Path("k.pem")}, "--tls-key: needs the certificate"), ({"token": ""}, "--token: is empty"),
        ({"token": "s\u00e9cret"}, "--token: .*ASCII"), ({"token": "two words"}, "--token: .*spaces"),
        ({"port": 9000, "grpc_port": 9000}, "--grpc-port: is the port of HTTP"),
        ({"watch": MonitorConfig(sample=0.5)}, "--sample: samples nothing"),
        ({"watch": MonitorConfig(features=True)}, "--feature-drift: watches nothing"),
        ({"baseline": Path("p.parquet")}, "--baseline: is a baseline of nothing"),
        ({"watch": MonitorConfig(keep_days=3), "monitor": True}, "--keep-days: keeps nothing"),
        ({"watch": MonitorConfig(half=True), "monitor": True}, "--log-float16: keeps nothing"),
        ({"watch": MonitorConfig(top=50), "monitor": True}, "--log-top: keeps nothing"),
        ({"log_to": "s3://b/log", "monitor": True}, "--log-to: keeps nothing"),
        ({"log_to": "folder", "feedback_log": Path("log")}, '--log-to: "folder" is no address'),
        ({"watch": MonitorConfig(segment_hours=2)}, "--segment-hours: keeps nothing"),
    ],
)  # fmt: skip
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ServeConfig([ModelSpec(Path("m.onnx"))], **options)


def test_versions_count_as_numbers() -> None:
    assert sorted(["10", "9", "a"], key=version_key) == ["a", "9", "10"]


def test_metrics_are_what_prometheus_reads() -> None:
    out, histogram = Exposition(), Histogram()
    for seconds in (0.0005, 0.003, 99.0):
        histogram.add(seconds)
    out.add("x_total", "counter", "Help.", 3, {"name": 'a"b\\c\n'})
    out.histogram("t", "Times.", histogram, {"m": "1"})
    lines = out.text().splitlines()
    assert lines[:3] == ["# HELP x_total Help.", "# TYPE x_total counter", 'x_total{name="a\\"b\\\\c\\n"} 3']
    assert f't_bucket{{m="1",le="{BOUNDS[0]}"}} 1' in lines
    assert 't_bucket{m="1",le="0.005"} 2' in lines
    assert 't_bucket{m="1",le="+Inf"} 3' in lines
    assert 't_count{m="1"} 3' in lines
    assert 't_sum{m="1"} 99.0035' in lines


HEAVY = ["torch", "onnx", "onnxruntime", "PIL", "pyarrow", "uvloop", "grpc", "hpack", "scipy"]
TRAINING = ["torch", "onnx", "timm", "netcal", "scipy", "sklearn", "matplotlib"]


def _loaded(imports: str, watched: list[str]) -> list[str]:
    code = f"import sys, {imports}; print(*sorted(set({watched}) & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    "module",
    ["calibrant.serve", "calibrant.serve.cli", "calibrant.serve.callers.bench", "calibrant.artifacts.feedback"],
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert _loaded(module, HEAVY) == []


def test_the_whole_server_runs_without_the_training_stack() -> None:
    modules = ("processes.server", "batch.predict", "engine.classifier", "grpc.server")
    assert _loaded(", ".join(f"calibrant.serve.{m}" for m in modules), [*TRAINING, "grpc"]) == []
    assert _loaded("calibrant.serve.processes.server", ["grpc", "hpack"]) == []  # unless --grpc-port is given
