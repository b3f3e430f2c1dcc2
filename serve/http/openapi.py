"""GET /openapi.json: the addresses of the server, for tools and generated clients; GET /docs: the same, to read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from calibrant._version import __version__
from calibrant.serve.engine.knobs import NAMES

_KNOBS = {
    "temperature": ("number", "Takes the place of the fitted temperature."),
    "adjust_strength": ("number", "Total strength of the prior correction; 0 is none, 1 is Bayes."),
    "target_prior": ("string", "Shares of the classes in use: comma-separated, `uniform` or `train`."),
    "abstain_below": ("number", "Confidence below which the answer says `abstained`."),
    "coverage": ("number", "Coverage of the prediction set, one of those in the model's metadata."),
    "top_k": ("integer", "How many classes to list."),
    "ood": ("boolean", "Give the out-of-distribution score."),
}


def document(models: Sequence[str], *, admin: bool, monitored: bool, guarded: bool = False) -> dict[str, Any]:
    name = _parameter("name", "path", {"type": "string", "enum": list(models)}, "Name of the model.", required=True)
    version = _parameter("version", "path", {"type": "string"}, "One of the versions in its metadata.", required=True)
    knobs = [
        _parameter("id", "query", {"type": "string"}, "Of the request; labels that come later name it."),
        *(_parameter(k, "query", {"type": _KNOBS[k][0]}, _KNOBS[k][1]) for k in NAMES),
    ]
    paths: dict[str, Any] = {
        "/v2/health/live": {"get": _operation("Is the process up?")},
        "/v2/health/ready": {"get": _operation("Are all models ready?")},
        "/v2": {"get": _operation("Name, version and extensions of the server.")},
        "/v2/models/stats": {"get": _operation("Counts and times of all models.")},
        "/predict": {
            "post": _operation(
                _PREDICT, [_parameter("model", "query", {"type": "string"}, "Needed where there are several."), *knobs],
                body=_PICTURES, answer=_PREDICTIONS,
            )
        },
        "/v2/repository/index": {"post": _operation("The models and their states.")},
        "/metrics": {"get": _operation("Prometheus metrics.", answer={"text/plain": {"schema": {"type": "string"}}})},
    }  # fmt: skip
    for start, given in (
        ("/v2/models/{name}", [name]), ("/v2/models/{name}/versions/{version}", [name, version])
    ):  # fmt: skip
        paths |= {
            start: {"get": _operation("Inputs, outputs and calibration of a model.", given)},
            f"{start}/ready": {"get": _operation("Is the model ready?", given)},
            f"{start}/config": {"get": _operation("Configuration as Triton words it.", given)},
            f"{start}/stats": {"get": _operation("Counts and times of a model.", given)},
            f"{start}/infer": {
                "post": _operation("Inference on tensors.", [*given, _JSON_LENGTH], body=_INFER, answer=_INFERRED)
            },
            f"{start}/predict": {"post": _operation(_PREDICT, [*given, *knobs], body=_PICTURES, answer=_PREDICTIONS)},
        }
    if monitored:
        paths["/v2/models/{name}/feedback"] = {"post": _operation("True labels by request id.", [name], body=_FEEDBACK)}
        paths["/v2/models/{name}/monitor"] = {"get": _operation("Accuracy, calibration and drift.", [name])}
    if admin:
        for verb in ("load", "unload"):
            path = f"/v2/repository/models/{{name}}/{verb}"
            paths[path] = {"post": _operation(f"{verb.capitalize()} a model.", [name])}
    lock: dict[str, Any] = {}
    if guarded:
        lock = {"components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
                "security": [{"bearer": []}]}  # fmt: skip
        for path in ("/v2/health/live", "/v2/health/ready"):
            paths[path]["get"]["security"] = []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Calibrant",
            "version": __version__,
            "description": "Open Inference Protocol V2 and /predict.",
        },
        "paths": paths,
        **lock,
    }


def page(document: dict[str, Any]) -> str:
    """The document as one page of HTML that needs nothing from elsewhere."""
    parts = []
    for path, verbs in sorted(document["paths"].items()):
        for verb, operation in verbs.items():
            rows = "".join(
                f"<tr><td><code>{escape(p['name'])}</code><td>{p['in']}<td>{escape(str(p['schema']['type']))}"
                f"<td>{escape(p['description'])}"
                for p in operation.get("parameters", ())
            )
            kinds = ", ".join(f"<code>{escape(k)}</code>" for k in operation.get("requestBody", {}).get("content", ()))
            parts.append(
                f"<section><h2><b>{verb.upper()}</b> <code>{escape(path)}</code></h2><p>{escape(operation['summary'])}"
                + (f" Body: {kinds}." if kinds else "") + (f"<table>{rows}</table>" if rows else "") + "</section>"
            )  # fmt: skip
    return _PAGE.replace("OPERATIONS", "\n".join(parts))


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Calibrant: addresses</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h2{font-size:1.05rem;font-weight:400;margin:1.5rem 0 0}p{margin:.2rem 0}td{padding:.1rem .8rem .1rem 0;
vertical-align:top}code{overflow-wrap:anywhere}</style>
<h1>Addresses of this server</h1>
<p>For tools: <a href="openapi.json">openapi.json</a>. Errors are <code>{"error": "..."}</code> everywhere.</p>
OPERATIONS
</html>
"""


def _parameter(name: str, where: str, schema: dict[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema, "description": text}


def _operation(
    text: str, parameters: Sequence[Any] = (), *, body: dict[str, Any] | None = None,
    answer: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    operation: dict[str, Any] = {
        "summary": text,
        "responses": {
            "200": {"description": "The answer.", "content": answer or _ANY},
            "default": {"description": "An error.", "content": {"application/json": {"schema": _ERROR}}},
        },
    }
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": body}
    return operation


_PREDICT = "Labels of pictures, with calibrated confidence."
_ANY: dict[str, Any] = {"application/json": {"schema": {}}}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"}, "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string"}, "data": {"type": "array"}, "parameters": {"type": "object"},
    },
}  # fmt: skip
_INFER: dict[str, Any] = {
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
_JSON_LENGTH = _parameter(
    "Inference-Header-Content-Length", "header", {"type": "integer"}, "Bytes of JSON before binary tensors."
)
_INFERRED = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["model_name", "outputs"],
            "properties": {
                "model_name": {"type": "string"}, "model_version": {"type": "string"}, "id": {"type": "string"},
                "outputs": {"type": "array", "items": _TENSOR},
            },
        }
    },
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}  # fmt: skip
_INFER["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
_CLASS = {"label": {"type": "string"}, "index": {"type": "integer"}}
_PREDICTIONS = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["model_name", "model_version", "predictions"],
            "properties": {
                "model_name": {"type": "string"}, "model_version": {"type": "string"}, "id": {"type": "string"},
                "predictions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["image", "label", "index", "confidence", "abstained", "top"],
                        "properties": {
                            "image": {"type": "string"}, **_CLASS, "confidence": {"type": "number"},
                            "abstained": {"type": "boolean"},
                            "top": {"type": "array", "items": {
                                "type": "object", "properties": {**_CLASS, "probability": {"type": "number"}}}},
                            "ood_score": {"type": "number"}, "ood": {"type": "boolean"},
                            "prediction_set": {"type": "array", "items": {"type": "string"}},
                            "coverage": {"type": "number"},
                        },
                    },
                },
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
