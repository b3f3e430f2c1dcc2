"""What requests and answers look like, as OpenAPI describes them."""

from __future__ import annotations

from typing import Any

from calibrant.serve.engine.knobs import NAMES


def parameter(name: str, where: str, schema: dict[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema, "description": text}


ANY: dict[str, Any] = {"application/json": {"schema": {}}}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"}, "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string"}, "data": {"type": "array"}, "parameters": {"type": "object"},
    },
}  # fmt: skip
INFER: dict[str, Any] = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["inputs"],
            "properties": {
                "id": {"type": "string"},
                "inputs": {"type": "array", "items": _TENSOR},
                "outputs": {"type": "array", "items": {"type": "object"}},
                "parameters": {"type": "object"},
            },
        }
    }
}
JSON_LENGTH = parameter(
    "Inference-Header-Content-Length", "header", {"type": "integer"}, "Bytes of JSON before binary tensors."
)
INFERRED = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["model_name", "outputs"],
            "properties": {
                "model_name": {"type": "string"},
                "model_version": {"type": "string"},
                "id": {"type": "string"},
                "outputs": {"type": "array", "items": _TENSOR},
            },
        }
    },
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}
INFER["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
_CLASS = {"label": {"type": "string"}, "index": {"type": "integer"}}
PREDICTIONS = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["model_name", "model_version", "predictions"],
            "properties": {
                "model_name": {"type": "string"},
                "model_version": {"type": "string"},
                "id": {"type": "string"},
                "predictions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["image", "label", "index", "confidence", "abstained", "top"],
                        "properties": {
                            "image": {"type": "string"},
                            **_CLASS,
                            "confidence": {"type": "number"},
                            "abstained": {"type": "boolean"},
                            "top": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "properties": {**_CLASS, "probability": {"type": "number"}},
                                },
                            },
                            "ood_score": {"type": "number"},
                            "ood": {"type": "boolean"},
                            "prediction_set": {"type": "array", "items": {"type": "string"}},
                            "coverage": {"type": "number"},
                        },
                    },
                },
            },
        }
    }
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
PICTURES = {
    "image/jpeg": _BINARY, "image/png": _BINARY, "image/webp": _BINARY,
    "multipart/form-data": {"schema": {"type": "object", "properties": {"image": _BINARY["schema"]}}},
}  # fmt: skip
FEEDBACK = {
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {
                "labels": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"id": {"type": "string"}, "label": {}}},
                },
                "chosen": {
                    "type": "boolean",
                    "description": "These rows were picked for what they are, such as errors: kept, not counted.",
                },
            },
        }
    }
}

DECISION: dict[str, Any] = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["decision"],
            "properties": {"decision": {"type": "string", "enum": ["promote", "roll back"]}},
        }
    }
}
TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
HTML: dict[str, Any] = {"text/html": {"schema": {"type": "string"}}}

_KNOBS = {
    "temperature": ("number", "Takes the place of the fitted temperature."),
    "adjust_strength": ("number", "Total strength of the prior correction; 0 is none, 1 is Bayes."),
    "target_prior": ("string", "Shares of the classes in use: comma-separated, `uniform` or `train`."),
    "abstain_below": ("number", "Confidence below which the answer says `abstained`."),
    "coverage": ("number", "Coverage of the prediction set, one of those in the model's metadata."),
    "top_k": ("integer", "How many classes to list."),
    "ood": ("boolean", "Give the out-of-distribution score."),
}
KNOBS = (
    parameter("id", "query", {"type": "string"}, "Of the request; labels that come later name it."),
    *(parameter(k, "query", {"type": _KNOBS[k][0]}, _KNOBS[k][1]) for k in NAMES),
)
MODEL = parameter("model", "query", {"type": "string"}, "Needed where there are several.")
