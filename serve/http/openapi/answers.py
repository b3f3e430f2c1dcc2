"""The answers of the server by name, as JSON Schema: what a generated client makes its types of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
YES_NO: Schema = {"type": "boolean"}
FREE: Schema = {"type": "object"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def answer(name: str) -> Schema:
    """As an operation says it."""
    return {"application/json": {"schema": ref(name)}}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _choice(values: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(values)}


_TENSOR = _object({"name": TEXT, "datatype": TEXT, "shape": _list(WHOLE)})
_PAIR = _object({"count": WHOLE, "ns": WHOLE})
_STAGES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
_BATCH_STAGES = ("compute_input", "compute_infer", "compute_output")
_SIDE = _object(
    {"name": TEXT, "data_type": TEXT, "dims": _list(WHOLE)},
    {"format": TEXT, "optional": YES_NO, "label_filename": TEXT},
)
_MEASURED = _object(
    {name: _or_null(NUMBER) for name in ("value", "low", "high", "null", "null_high")},
    {"true_error": _or_null(NUMBER), "largest": _or_null(NUMBER), "withheld": TEXT},
)
_INTERVAL = _object({name: NUMBER for name in ("value", "low", "high")})
_EXPECTED = _object(
    {**_INTERVAL["properties"], "rows": WHOLE, "held_out_gap": NUMBER, "assumes": TEXT},
)
_ALARM = _object(
    {
        "on": YES_NO,
        "rows": WHOLE,
        "raised_at": _or_null(WHOLE),
        "fired_at": _or_null(WHOLE),
        "log_evidence": _or_null(NUMBER),
        "log_threshold": NUMBER,
    },
    {"baseline_rows": WHOLE},
)
_LABELLED = _object(
    {
        "rows": WHOLE,
        "accuracy": ref("Measured"),
        "ece": ref("Measured"),
        "nll": ref("Measured"),
        "coverage": _or_null(ref("Measured")),
        "expected_accuracy": ref("Interval"),
        "expected_accuracy_error": NUMBER,
    },
    {"nominal_coverage": NUMBER},
)
_SUMMARY = _object(
    {
        "rows": WHOLE,
        "labels": WHOLE,
        "expected_accuracy": _or_null(FREE),
        "alarm": YES_NO,
        "verdict": TEXT,
        **{name: _or_null(ref("Measured")) for name in ("accuracy", "ece", "nll", "coverage")},
    },
)
_SHARES = _object(
    {"rows": WHOLE, "shares": _or_null(_map(ref("Interval"))), "said": _list(TEXT)},
    {"labelled_rows": WHOLE, "shifted": YES_NO, "consistent": YES_NO, "p_value": _or_null(NUMBER)},
)
_MONITOR = _object(
    {
        "model": TEXT,
        "version": TEXT,
        "sha256": TEXT,
        "rows": WHOLE,
        "labels": WHOLE,
        "chosen_labels": WHOLE,
        "window": WHOLE,
        "not_finite": WHOLE,
        "log_rows_lost": WHOLE,
        "alarms": _map(ref("Alarm")),
        "verdict": FREE,
    },
    {
        "expected_accuracy": ref("ExpectedAccuracy"),
        "logits_kept": WHOLE,
        "features": _object({"watched": YES_NO, "said": TEXT, "rows_without": WHOLE}),
        "predicted_prior": _map(NUMBER),
        "labelled": ref("LabelledRows"),
        "class_shares": ref("ClassShares"),
        "versions": _map(ref("VersionSummary")),
    },
)
_FIGURE = _object(
    {
        "figure": TEXT,
        **{name: NUMBER for name in ("old", "canary", "low", "high", "margin")},
        "rows": WHOLE,
        "state": _choice(("worse", "no worse", "open")),
    },
)
_DECIDED = _object(
    {
        "version": TEXT,
        "sha256": TEXT,
        "state": _choice(("promoted", "rolled back")),
        "reason": TEXT,
        "time": NUMBER,
        "over": _list(TEXT),
    },
)
_RUNNING = _object(
    {
        "version": TEXT,
        "share": NUMBER,
        "automatic": YES_NO,
        "beside": _or_null(TEXT),
        "since": _or_null(NUMBER),
        "waits_for": _or_null(TEXT),
        "figures": _list(ref("CanaryFigure")),
    },
)
_STATISTICS = _object(
    {
        "name": TEXT,
        "version": TEXT,
        "last_inference": WHOLE,
        "inference_count": WHOLE,
        "execution_count": WHOLE,
        "inference_stats": _object(dict.fromkeys(_STAGES, ref("CountAndTime"))),
        "batch_stats": _list(_object({"batch_size": WHOLE, **dict.fromkeys(_BATCH_STAGES, ref("CountAndTime"))})),
    },
)
_CONFIG = _object(
    {
        "name": TEXT,
        "platform": TEXT,
        "backend": TEXT,
        "max_batch_size": WHOLE,
        "input": _list(_SIDE),
        "output": _list(_SIDE),
        "version_policy": FREE,
        "dynamic_batching": FREE,
        "instance_group": _list(FREE),
        "default_model_filename": TEXT,
        "parameters": FREE,
    },
)
_STATE = _object({"name": TEXT, "version": TEXT, "state": _choice(("READY", "LOADING", "UNAVAILABLE")), "reason": TEXT})
_FEEDBACK = _object({"accepted": WHOLE, "repeated": WHOLE, "changed": WHOLE, "unknown": _list(TEXT)})

SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": TEXT}),
    "Live": _object({"live": YES_NO}),
    "Ready": _object({"ready": YES_NO, "live": YES_NO}),
    "ModelReady": _object({"name": TEXT, "ready": YES_NO}),
    "Server": _object({"name": TEXT, "version": TEXT, "extensions": _list(TEXT)}),
    "Tensor": _TENSOR,
    "Model": _object(
        {"name": TEXT, "versions": _list(TEXT), "platform": TEXT, "inputs": _list(ref("Tensor")),
         "outputs": _list(ref("Tensor"))},
        {"parameters": FREE},
    ),
    "ModelConfig": _CONFIG,
    "CountAndTime": _PAIR,
    "ModelStatistics": _STATISTICS,
    "Statistics": _object({"model_stats": _list(ref("ModelStatistics"))}),
    "ModelState": _STATE,
    "Index": _list(ref("ModelState")),
    "Done": _object({}),
    "LabelsTaken": _FEEDBACK,
    "Measured": _MEASURED,
    "Interval": _INTERVAL,
    "ExpectedAccuracy": _EXPECTED,
    "Alarm": _ALARM,
    "LabelledRows": _LABELLED,
    "VersionSummary": _SUMMARY,
    "ClassShares": _SHARES,
    "Monitor": _MONITOR,
    "CanaryFigure": _FIGURE,
    "CanaryDecision": _DECIDED,
    "RunningCanary": _RUNNING,
    "Canary": _object(
        {"model": TEXT, "canary": _or_null(ref("RunningCanary")), "decided": _list(ref("CanaryDecision"))}
    ),
    "OpenApi": FREE,
}  # fmt: skip
