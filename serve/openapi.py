"""GET /openapi.json: the addresses of the server, for tools and generated clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrant._version import __version__
from calibrant.serve.knobs import NAMES

_KNOBS = {
    "temperature": ("number", "Takes the place of the fitted temperature."),
    "adjust_strength": ("number", "Total strength of the prior correction; 0 is none, 1 is Bayes."),
    "target_prior": ("string", "Shares of the classes in use: comma-separated, `uniform` or `train`."),
    "abstain_below": ("number", "Confidence below which the answer says `abstained`."),
    "coverage": ("number", "Coverage of the prediction set, one of those in the model's metadata."),
    "top_k": ("integer", "How many classes to list."),
    "ood": ("boolean", "Give the out-of-distribution score."),
}


def document(models: Sequence[str], *, admin: bool, monitored: bool) -> dict[str, Any]:
    name = _parameter("name", "path", {"type": "string", "enum": list(models)}, "Name of the model.", required=True)
    knobs = [_parameter(k, "query", {"type": _KNOBS[k][0]}, _KNOBS[k][1]) for k in NAMES]
    paths: dict[str, Any] = {
        "/v2/health/live": {"get": _operation("Is the process up?")},
        "/v2/health/ready": {"get": _operation("Are all models ready?")},
        "/v2": {"get": _operation("Name, version and extensions of the server.")},
        "/v2/models/{name}": {"get": _operation("Inputs, outputs and calibration of a model.", [name])},
        "/v2/models/{name}/ready": {"get": _operation("Is the model ready?", [name])},
        "/v2/models/{name}/config": {"get": _operation("Configuration as Triton words it.", [name])},
        "/v2/models/{name}/stats": {"get": _operation("Counts and times of a model.", [name])},
        "/v2/models/{name}/infer": {"post": _operation("Inference on tensors.", [name], body=_INFER)},
        "/predict": {
            "post": _operation(
                "Labels of pictures, with calibrated confidence.",
                [_parameter("model", "query", {"type": "string"}, "Needed where there are several."), *knobs],
                body=_PICTURES,
            )
        },
        "/v2/repository/index": {"post": _operation("The models and their states.")},
        "/metrics": {"get": _operation("Prometheus metrics.")},
    }
    if monitored:
        paths["/v2/models/{name}/feedback"] = {"post": _operation("True labels by request id.", [name], body=_FEEDBACK)}
        paths["/v2/models/{name}/monitor"] = {"get": _operation("Accuracy, calibration and drift.", [name])}
    if admin:
        for verb in ("load", "unload"):
            path = f"/v2/repository/models/{{name}}/{verb}"
            paths[path] = {"post": _operation(f"{verb.capitalize()} a model.", [name])}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Calibrant",
            "version": __version__,
            "description": "Open Inference Protocol V2 and /predict.",
        },
        "paths": paths,
    }


def _parameter(name: str, where: str, schema: dict[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema, "description": text}


def _operation(text: str, parameters: Sequence[Any] = (), *, body: dict[str, Any] | None = None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": text,
        "responses": {
            "200": {"description": "The answer."},
            "default": {"description": "An error.", "content": {"application/json": {"schema": _ERROR}}},
        },
    }
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"}, "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string"}, "data": {"type": "array"}, "parameters": {"type": "object"},
    },
}  # fmt: skip
_INFER = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["inputs"],
            "properties": {
                "id": {"type": "string"}, "inputs": {"type": "array", "items": _TENSOR},
                "outputs": {"type": "array", "items": {"type": "object"}}, "parameters": {"type": "object"},
            },
        }
    }
}  # fmt: skip
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PICTURES = {
    "image/jpeg": _BINARY, "image/png": _BINARY, "image/webp": _BINARY,
    "multipart/form-data": {"schema": {"type": "object", "properties": {"image": _BINARY["schema"]}}},
}  # fmt: skip
_FEEDBACK = {
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {
                "labels": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"id": {"type": "string"}, "label": {}}},
                }
            },
        }
    }
}
