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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.onnx_wire import Value
from calibrant.atomic import write_text
from calibrant.errors import ConfigError
from calibrant.export.checks.inspection import check_intact
from calibrant.export.edit import retail

TYPES = {1: "TYPE_FP32", 2: "TYPE_UINT8", 6: "TYPE_INT32", 7: "TYPE_INT64", 10: "TYPE_FP16"}


@dataclass(frozen=True)
class TritonConfig:
    name: str | None = None
    max_batch: int = 32
    queue_delay_us: int = 0  # 0 sends what waits at once, usually the best start
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
    if config.queue_delay_us < 0:
        raise ConfigError(f"the queue delay is {config.queue_delay_us} microseconds", fix="give 0 or more")
    if config.ensemble and (card.input.dtype != "uint8" or card.knobs != "baked"):
        raise ConfigError(
            "the decoding step needs a file with uint8 input and baked knobs", where=model, fix="export such a file"
        )
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
        "dynamic_batching": {"max_queue_delay_microseconds": config.queue_delay_us},
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
    decode, height, width = f"{name}_decode", *card.preprocessing.size
    pixels = {"name": "images", "data_type": Word("TYPE_UINT8"), "dims": [height, width, 3]}
    picture = {"name": "image_file", "data_type": Word("TYPE_STRING"), "dims": [1]}
    folder = repository / decode
    (folder / "1").mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.pbtxt", text({
        "name": decode, "backend": "python", "max_batch_size": config.max_batch, "input": [picture],
        "output": [pixels], "dynamic_batching": {}, "instance_group": [{"count": 2, "kind": Word("KIND_CPU")}],
    }))  # fmt: skip
    template = (Path(__file__).parent / "decode_step.py").read_text()
    empty = "PREPROCESSING = {}  # type: ignore[var-annotated]"
    filled = f"PREPROCESSING = {json.dumps(card.preprocessing.to_dict())}"
    write_text(folder / "1" / "model.py", template.replace(empty, filled))
    outputs = [_tensor(v, labels=True) for v in file.outputs]
    write_text(repository / name / "config.pbtxt", text({
        "name": name, "platform": "ensemble", "max_batch_size": config.max_batch, "input": [picture],
        "output": outputs,
        "ensemble_scheduling": {"step": [
            {"model_name": decode, "model_version": -1, "input_map": [_pair("image_file", "image_file")],
             "output_map": [_pair("images", "pixels")]},
            {"model_name": f"{name}_model", "model_version": -1, "input_map": [_pair("images", "pixels")],
             "output_map": [_pair(v.name, v.name) for v in file.outputs]},
        ]},
    }))  # fmt: skip
    (repository / name / "1").mkdir(
        parents=True, exist_ok=True
    )  # an ensemble has a version folder too, and it is empty
    shutil.copyfile(repository / f"{name}_model" / "labels.txt", repository / name / "labels.txt")


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
