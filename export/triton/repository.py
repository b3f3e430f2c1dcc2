"""A deployed file as a Triton model repository, with a KServe manifest and, if wanted, a step that decodes JPEGs.

    REPO/NAME/config.pbtxt  REPO/NAME/labels.txt  REPO/NAME/1/model.onnx

Calibration and prior are in the graph, where Triton has no other place for them. With batching every knob must be an
ordinary input with a row per image: Triton refuses optional ones then, so a file with runtime knobs loses its defaults.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_wire import Value
from calibrant.atomic import write_text
from calibrant.errors import ConfigError
from calibrant.export.checks.inspection import check_intact
from calibrant.export.edit import retail

KEEPS = "version.txt"  # in the folder of a version that has no file
TYPES = {1: "TYPE_FP32", 2: "TYPE_UINT8", 6: "TYPE_INT32", 7: "TYPE_INT64", 10: "TYPE_FP16"}


@dataclass(frozen=True)
class TritonConfig:
    name: str | None = None
    max_batch: int = 32
    queue_delay_us: int = 0  # 0 sends what waits at once, usually the best start
    queue_timeout_us: int = 30_000_000  # a request that waits longer is refused; one may ask for less; 0: never
    queue_size: int = 0  # requests that may wait, 0: any number
    instances: int = 1
    device: Literal["cpu", "gpu"] = "cpu"
    threads: int | None = None  # of onnxruntime per instance
    cache: bool = False  # response cache, also to be switched on in the server
    warmup: bool = True
    ensemble: bool = False  # NAME takes JPEG or PNG files and NAME_model the pixels


class Word(str):
    """An enumeration value: written without quotes."""


def export_triton(model: str | Path, repository: str | Path, config: TritonConfig | None = None) -> Path:
    """Writes the folder(s) of the model into the repository and gives the one that clients call."""
    config = config or TritonConfig()
    source, repository = OnnxFile.open(model), Path(repository)
    card = source.card()
    check_intact(source, card)
    name = config.name or re.sub(r"[^A-Za-z0-9_.-]", "_", card.name)
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name):
        raise ConfigError(f'"{name}" is not a model name', where="--name", fix="use letters, digits, _ . and -")
    if config.max_batch < 1 or config.instances < 1 or (config.threads is not None and config.threads < 1):
        raise ConfigError("batch size, instances and threads must be at least 1")
    for what in ("queue_delay_us", "queue_timeout_us", "queue_size"):
        if getattr(config, what) < 0:
            raise ConfigError(f"{getattr(config, what)} is below 0", where=f"--{what.replace('_', '-')}")
    if config.ensemble and not card.input.pictures:
        raise ConfigError("takes rows of numbers, which nothing decodes", where=model, fix="leave --ensemble out")
    inner = f"{name}_model" if config.ensemble else name
    folder = repository / inner
    (folder / "1").mkdir(parents=True, exist_ok=True)
    target = folder / "1" / "model.onnx"
    if card.knobs == "runtime":
        retail(source, replace(card, knobs="required"), "knobs became required inputs, for Triton", target)
    else:
        shutil.copyfile(source.path, target)
        for data in source.external_files():
            shutil.copyfile(data, target.parent / data.name)
    file = OnnxFile.open(target)
    write_text(folder / "labels.txt", "".join(f"{_one_line(c)}\n" for c in card.classes))
    write_text(folder / "config.pbtxt", text(model_config(file, inner, config)))
    if config.ensemble:
        _write_ensemble(file, card, repository, name, config)
    return repository / name


def model_config(file: OnnxFile, name: str, config: TritonConfig) -> dict[str, Any]:
    """config.pbtxt as nested tables."""
    found: dict[str, Any] = {
        "name": name, "backend": "onnxruntime", "max_batch_size": config.max_batch,
        "input": [_tensor(v) for v in file.inputs], "output": [_tensor(v, labels=True) for v in file.outputs],
        "dynamic_batching": {"max_queue_delay_microseconds": config.queue_delay_us, **_queue(config)},
        "instance_group": [{"count": config.instances, "kind": Word(f"KIND_{config.device.upper()}")}],
    }  # fmt: skip
    if config.threads is not None:
        found["parameters"] = [{"key": "intra_op_thread_count", "value": {"string_value": str(config.threads)}}]
    if config.warmup:
        found["model_warmup"] = [
            {"name": f"batch_of_{size}", "batch_size": size, "inputs": [_warm(v) for v in file.inputs]}
            for size in sorted({1, config.max_batch})
        ]
    if config.cache:
        found["response_cache"] = {"enable": True}
    return found


def _queue(config: TritonConfig) -> dict[str, Any]:
    """Who waits too long is told so, after a request's own `timeout` or ours: Triton's queue has no end by itself."""
    policy: dict[str, Any] = {"timeout_action": Word("REJECT"), "allow_timeout_override": True}
    if config.queue_timeout_us:
        policy["default_timeout_microseconds"] = config.queue_timeout_us
    if config.queue_size:
        policy["max_queue_size"] = config.queue_size
    return {"default_queue_policy": policy}


def _tensor(value: Value, *, labels: bool = False) -> dict[str, Any]:
    """Name, type and shape without the batch axis."""
    found: dict[str, Any] = {"name": value.name, "data_type": Word(TYPES[value.dtype]), "dims": list(value.dims[1:])}
    if labels and value.name == "probabilities":
        found["label_filename"] = "labels.txt"
    return found


def _warm(value: Value) -> dict[str, Any]:
    # random, not zero: a temperature of 0 would warm up on NaN
    kind = {"data_type": Word(TYPES[value.dtype]), "dims": list(value.dims[1:]), "random_data": True}
    return {"key": value.name, "value": kind}


def _write_ensemble(file: OnnxFile, card: ModelCard, repository: Path, name: str, config: TritonConfig) -> None:
    """NAME_decode, and NAME of both. Knobs are inputs of NAME too."""
    decode, model = f"{name}_decode", f"{name}_model"
    decoded = next(v for v in file.inputs if v.name == card.input.name)
    knobs = [v for v in file.inputs if v is not decoded]
    picture = {"name": "image_file", "data_type": Word("TYPE_STRING"), "dims": [1]}
    template = (Path(__file__).parent / "decode_step.py").read_text()
    for table, values in (("PREPROCESSING", card.preprocessing.to_dict()), ("INPUT", asdict(card.input))):
        empty = f"{table} = {{}}  # type: ignore[var-annotated]"
        template = template.replace(empty, f"{table} = {json.dumps(values)}")
    folder = repository / decode
    (folder / "1").mkdir(parents=True, exist_ok=True)
    write_text(folder / "1" / "model.py", template)
    write_text(folder / "config.pbtxt", text({
        "name": decode, "backend": "python", "max_batch_size": config.max_batch, "input": [picture],
        "output": [{**_tensor(decoded), "name": "images"}], "dynamic_batching": _queue(config),
        "instance_group": [{"count": 2, "kind": Word("KIND_CPU")}],
    }))  # fmt: skip
    write_text(repository / name / "config.pbtxt", text({
        "name": name, "platform": "ensemble", "max_batch_size": config.max_batch,
        "input": [picture, *(_tensor(v) for v in knobs)],
        "output": [_tensor(v, labels=True) for v in file.outputs],
        "ensemble_scheduling": {"step": [
            {"model_name": decode, "model_version": -1, "input_map": [_pair("image_file", "image_file")],
             "output_map": [_pair("images", "pixels")]},
            {"model_name": model, "model_version": -1,
             "input_map": [_pair(decoded.name, "pixels"), *(_pair(v.name, v.name) for v in knobs)],
             "output_map": [_pair(v.name, v.name) for v in file.outputs]},
        ]},
    }))  # fmt: skip
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    write_text(
        repository / name / "1" / KEEPS, "Triton wants a folder for the version, and git and S3 keep no empty one.\n"
    )
    shutil.copyfile(repository / model / "labels.txt", repository / name / "labels.txt")


def _pair(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


def text(table: Mapping[str, Any], indent: str = "") -> str:
    """Protobuf text format. A list of tables repeats the field; a list of numbers stands in brackets."""
    lines: list[str] = []
    for key, value in table.items():
        if isinstance(value, Sequence) and not isinstance(value, str) and value and isinstance(value[0], Mapping):
            lines += [f"{indent}{key} {{\n{text(item, indent + '  ')}{indent}}}\n" for item in value]
        elif isinstance(value, Mapping):
            lines.append(f"{indent}{key} {{\n{text(value, indent + '  ')}{indent}}}\n")
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Sequence):
        return "[ " + ", ".join(map(str, value)) + " ]"
    return str(value)


def _one_line(name: str) -> str:
    return " ".join(name.split())


def kserve_manifest(name: str, storage_uri: str, *, gpu: bool = False, cpus: int = 2, memory: str = "2Gi") -> str:
    """An InferenceService that runs the repository under `storage_uri` in KServe's Triton runtime."""
    service = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63].rstrip("-")
    if not service or not service[0].isalpha():
        service = f"model-{service}".rstrip("-")
    extra = '\n          nvidia.com/gpu: "1"' if gpu else ""
    return f"""apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {service}
spec:
  predictor:
    model:
      modelFormat:
        name: triton
      runtime: kserve-tritonserver
      protocolVersion: v2
      storageUri: {json.dumps(storage_uri)}
      resources:
        requests:
          cpu: "{cpus}"
          memory: {memory}
        limits:
          cpu: "{cpus}"
          memory: {memory}{extra}
"""
