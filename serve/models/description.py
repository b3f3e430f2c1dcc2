"""What a model is told of on the wire: metadata, configuration and statistics, as the V2 protocol words them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from calibrant.serve.engine import prediction_sets
from calibrant.serve.models.model import Model
from calibrant.serve.protocol.tensors import TensorSpec


def metadata(model: Model, versions: Sequence[str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": model.name,
        "versions": list(versions),
        "platform": "onnxruntime_onnx",
        "inputs": [s.to_dict() for s in model.target.inputs.values() if not s.optional],
        "outputs": [s.to_dict() for s in model.target.outputs.values()],
    }
    card = model.session.card
    if card is not None:
        body["parameters"] = {"calibrant": _provenance(model)}
    return body


def _provenance(model: Model) -> dict[str, Any]:
    """Where the confidence comes from; the class names last, since there may be thousands."""
    card = model.session.require_card()
    calibrator = dict(card.calibrator or {})
    return {
        "sha256": model.sha256,
        "knobs": card.knobs,
        "calibrator": {k: v for k, v in calibrator.items() if _small(v)} or None,
        "class_temperatures": card.class_temperatures is not None,
        "prior": {
            "train_known": card.prior.train is not None,
            "target": "uniform" if card.prior.target is None else "given",
            "absorbed": card.prior.absorbed,
            "applied": card.prior.applied,
            "total": card.prior.total,
        },
        "abstain_below": card.abstain_below,
        "coverages": list(prediction_sets.coverages(card)),
        "ood": {k: v for k, v in (card.ood or {}).items() if _small(v)} or None,
        "metrics": card.metrics,
        "precision": dict(card.precision),
        "preprocessing": card.preprocessing.to_dict(),
        "source": {k: v for k, v in card.source.items() if _small(v)},
        "optional_inputs": [s.to_dict() for s in model.session.inputs.values() if s.optional],
        "derived_outputs": [s.to_dict() for s in model.target.derived.values()],
        "classes": list(card.classes),
    }


def _provenance_parameter(model: Model) -> dict[str, dict[str, str]]:
    """As text, for gRPC, whose metadata message has no place for it; without the class names."""
    if model.session.card is None:
        return {}
    facts = {key: value for key, value in _provenance(model).items() if key != "classes"}
    return {"calibrant": {"string_value": json.dumps(facts, default=dict)}}


def config(model: Model) -> dict[str, Any]:
    """The model configuration of Triton's extension, as its server would have derived it from the file."""
    batched = model.session.batched

    def side(spec: TensorSpec) -> dict[str, Any]:
        dims = spec.shape[1:] if batched else spec.shape
        kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
        return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(dims)}

    return {
        "name": model.name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": model.target.max_rows if batched else 0,
        "input": [{**side(s), "format": "FORMAT_NONE", "optional": s.optional} for s in model.target.inputs.values()],
        "output": [{**side(s), "label_filename": ""} for s in model.target.outputs.values()],
        "dynamic_batching": {"preferred_batch_size": [model.batcher.cap], "max_queue_delay_microseconds": 0},
        "instance_group": [{"name": model.name, "kind": "KIND_GPU" if _on_gpu(model) else "KIND_CPU", "count": 1}],
        "default_model_filename": model.session.path.name,
        "parameters": {
            "execution_provider": {"string_value": model.session.providers[0]},
            "threads": {"string_value": str(model.session.threads)},
            "batch_cap": {"string_value": str(model.batcher.cap)},
            **_provenance_parameter(model),
        },
    }


def _on_gpu(model: Model) -> bool:
    return any(word in model.session.providers[0] for word in ("CUDA", "Tensorrt", "ROCM"))


def statistics(model: Model) -> dict[str, Any]:
    own, counts = model.statistics, model.batcher.counts

    def pair(count: int, ns: int) -> dict[str, int]:
        return {"count": count, "ns": ns}

    return {
        "name": model.name,
        "version": model.version,
        "last_inference": own.last_inference_ms,
        "inference_count": counts.rows,
        "execution_count": counts.executions,
        "inference_stats": {
            "success": pair(own.success, own.success_ns),
            "fail": pair(own.fail, own.fail_ns),
            "queue": pair(own.success, own.queue_ns),
            "compute_input": pair(own.success, own.input_ns),
            "compute_infer": pair(own.success, own.infer_ns),
            "compute_output": pair(own.success, own.output_ns),
            "cache_hit": pair(0, 0),
            "cache_miss": pair(0, 0),
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": pair(runs, 0),
                "compute_infer": pair(runs, ns),
                "compute_output": pair(runs, 0),
            }
            for rows, (runs, ns) in sorted(model.batcher.batch_sizes.copy().items())
        ],
    }


def _small(value: Any) -> bool:
    return not isinstance(value, list | tuple | dict) or len(str(value)) < 500
