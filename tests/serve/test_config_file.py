"""`serve --config`: the options by their names, the command line first, and mistakes said before the start."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import httpx
import pytest

from calibrant.errors import ConfigError
from calibrant.serve.cli import serve
from calibrant.serve.config_file import read_config_file
from calibrant.serve.processes.background import running


def read(folder: Path, text: str) -> Any:
    (folder / "serve.toml").write_text(text)
    return read_config_file(folder / "serve.toml", serve.params)


def _a_number(kind: Any) -> int:
    most = getattr(kind, "max", None)
    return int(most) if most is not None else int(getattr(kind, "min", None) or 0) + 1


def test_every_option_of_the_command_line_can_stand_in_the_file(tmp_path: Path) -> None:
    lines, names = [], set()
    for option in serve.params:
        word = next((w[2:] for w in option.opts if w.startswith("--")), option.name)
        if word in ("config", "check", "help"):
            continue
        several = option.multiple if isinstance(option, click.Option) else True
        flag = isinstance(option, click.Option) and option.is_flag
        number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        one = str(_a_number(option.type)) if number else '"x"'
        value = "true" if flag else f"[{one}]" if several else one
        lines.append(f"{word} = {value}")
        names.add(option.name)
    assert read(tmp_path, "\n".join(lines)).options.keys() == names
    assert len(names) > 30


def test_paths_are_seen_from_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, 'models = ["a.onnx", "birds@2=sub/b.onnx"]\nfeedback-log = "log"\ntls_cert = "/etc/c.pem"')
    assert found.options == {
        "models": [str(tmp_path / "a.onnx"), f"birds@2={tmp_path}/sub/b.onnx"],
        "feedback_log": str(tmp_path / "log"),
        "tls_cert": "/etc/c.pem",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", 'no option "prot"; did you mean "port"'),
        ("port = [1]", "port is one value"),
        ('canary = "a@1=0.1"', "canary is a list"),
        ("admin = 1", "admin is true or false"),
        ("[limits]\nmax_row = 3", 'no key "max_row"; did you mean "max_rows"'),
        ("[limits]\nmax_body = 3", "write it above the tables as max_body (MiB)"),
        ('[limits]\nmax_rows = "many"', "expected int"),
        ("[watch]\nwindow = 1.5", "expected int"),
        ("limits = 3", "expected a table"),
        ("workers = 2.5", "workers is a whole number, got 2.5"),
        ('port = "some"', "port: 'some' is not a valid integer"),
        ("allowed_host = [1]", "allowed_host is text, got 1"),
        ("max_wait = 2000-01-01", "max_wait is a number, got"),
        ("host = 1", "host is text, got 1"),
        ("port = 70000", "port: 70000 is not in the range 0<=x<=65535"),
        ("[watch]\nwindow = 0", "window = 0: it has to be 1 or more"),
        ("[watch]\nalpha = 1", "alpha = 1: it is a probability"),
        ("port = ", "not a TOML file"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert says in str(error.value)


def test_a_server_does_what_its_file_says_and_the_command_line_first(tmp_path: Path, tiny: ModuleType) -> None:
    """Also: a request's id comes back and stands in the log, with what answered."""
    tiny.write(tmp_path / "birds.onnx")
    config = tmp_path / "serve.toml"
    config.write_text(
        'models = ["crows@3=birds.onnx"]\nthreads = 1\naccess_log = true\nadmin = true\nlog_format = "json"\n'
        "batch_cap = 8\n[limits]\nmax_rows = 2\n"
    )
    with running(arguments=["--config", str(config), "--batch-cap", "5"]) as server:
        answer = httpx.get(f"{server.url}/v2/models/crows/config").json()
        assert answer["parameters"]["batch_cap"]["string_value"] == "5"
        url = f"{server.url}/v2/models/crows/infer"
        pixels = tiny.pictures(3)
        body = {"inputs": [{"name": "images", "shape": pixels.shape, "datatype": "UINT8", "data": pixels.tolist()}]}
        refused = httpx.post(url, json=body, headers={"X-Request-Id": "order-17"})
        assert (refused.status_code, refused.headers["x-request-id"]) == (400, "order-17")
        ours = httpx.get(f"{server.url}/v2", headers={"X-Request-Id": "two words"}).headers["x-request-id"]
        assert len(ours) == 16
        text = server.log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("request_id") == "order-17"]
    assert (line["model"], line["version"], line["status"]) == ("crows", "3", 400)
    assert line["ms"] >= 0
    assert any("batch cap" in line.get("message", "") for line in lines)
