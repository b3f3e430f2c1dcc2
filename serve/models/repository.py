"""The models that a server holds, by name and version, and the life of each: loading, ready, draining, gone."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, did_you_mean
from calibrant.serve.engine import prediction_sets
from calibrant.serve.engine.classifier import Classifier
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.result import Result, answer, require_energy
from calibrant.serve.engine.session import Arrays, Session
from calibrant.serve.http.prometheus import Histogram
from calibrant.serve.models.batcher import Batcher, Job
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.protocol.errors import BadInput, ModelNotFound, NotFound, NotReady
from calibrant.serve.protocol.request import InferRequest, Target
from calibrant.serve.protocol.tensors import TensorSpec

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass
class Statistics:
    """Counts and nanoseconds of one model, as Triton's statistics extension reports them."""

    success: int = 0
    success_ns: int = 0
    fail: int = 0
    fail_ns: int = 0
    output_ns: int = 0
    rows: int = 0
    abstained: int = 0
    cancelled: int = 0
    turned_away: int = 0  # refused because the queue was full
    shadowed: int = 0
    last_inference_ms: int = 0
    latency: Histogram = field(default_factory=Histogram)


@dataclass
class Model:
    """One version of a model, loaded and measured."""

    name: str
    version: str
    session: Session
    batcher: Batcher
    target: Target
    loaded: float = field(default_factory=time.time)
    statistics: Statistics = field(default_factory=Statistics)
    sha256: str = ""
    stamp: tuple[int, int, int] = (0, 0, 0)  # inode, size, mtime of the file when it was loaded
    active: int = 0  # requests accepted and not yet answered
    monitor: Monitor | None = None

    def __post_init__(self) -> None:
        self.classifier = Classifier(self.session)
        self.graph_outputs = tuple(self.session.outputs)
        self._standard = "logits" in self.session.outputs

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        name: str | None = None,
        version: str = "1",
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        cap: int | None = None,
        max_rows: int = 1024,
        deliver: Callable[[list[Job]], None] | None = None,
        soon: Callable[[Callable[[], None]], None] | None = None,
    ) -> Model:
        stamp = file_stamp(Path(path))
        session = Session(path, providers=providers, threads=threads)
        session.warm_up()
        name = name or session.own_name
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f'"{name}" cannot be a model name', where=path, fix="give --name with letters, digits, . _ - only"
            )
        on_cpu = session.providers[0] == "CPUExecutionProvider"
        batcher = Batcher(session, cap=cap, deliver=deliver, soon=soon if on_cpu else None)
        target = Target(
            name, session.inputs, session.outputs, _derived(session), session.batched, max_rows,
            session.card is not None,
        )  # fmt: skip
        return cls(name, version, session, batcher, target, sha256=session.sha256(), stamp=stamp)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return None if self.session.card is None else self.session.card.classes

    def needed_outputs(self, request: InferRequest) -> tuple[str, ...]:
        """The graph outputs that the request's answer is made of."""
        if request.plan is not None and request.plan.needed:
            return request.plan.needed
        names = [w.name for w in request.outputs if w.name in self.session.outputs]
        computed = any(w.name in self.target.derived for w in request.outputs)
        if request.knobs is not None or computed or request.pictures or self.monitor is not None:
            wanted = ("probabilities", "logits", "ood_score") if self._standard else self.graph_outputs
            names += [n for n in wanted if n in self.session.outputs and n not in names]
        needed = tuple(names) or self.graph_outputs[:1]
        if request.plan is not None:  # a plan belongs to this model's target, and dies with it
            request.plan.needed = needed
        return needed

    def require_monitor(self) -> Monitor:
        if self.monitor is None:
            why = "its file has no calibrant block" if self.session.card is None else "start the server with --monitor"
            raise NotFound(f"{self.name} is not monitored; {why}")
        return self.monitor

    def succeeded(self, received: float, rows: int) -> None:
        own, seconds = self.statistics, time.monotonic() - received
        own.success += 1
        own.rows += rows
        own.success_ns += int(seconds * 1e9)
        own.latency.add(seconds)
        own.last_inference_ms = int(time.time() * 1000)

    def failed(self, received: float) -> None:
        self.statistics.fail += 1
        self.statistics.fail_ns += int((time.monotonic() - received) * 1e9)

    def check(self, request: InferRequest) -> None:
        """Refuses knobs and derived outputs that this file has no answer to, before the request may join a batch."""
        asked = {w.name for w in request.outputs} & self.target.derived.keys()
        if request.knobs is None and not asked:
            return
        card, formula, knobs = self.session.require_card(), self.classifier.formula, request.knobs or Knobs()
        if "prediction_set" in asked and knobs.coverage is None:
            raise BadInput('output "prediction_set" needs the parameter `coverage`')
        if "ood_score" in asked and not knobs.ood:
            raise BadInput('output "ood_score" needs the parameter `ood`: true')
        if knobs.coverage is not None:
            prediction_sets.thresholds(card, knobs.coverage)
        if knobs.ood and "ood_score" not in self.session.outputs:
            require_energy(formula)
        formula.check(knobs)

    def finish(self, request: InferRequest, outputs: Arrays) -> Arrays:
        """The tensors to answer with: the graph's, or what the knobs make of them, and the derived ones."""
        asked = {w.name for w in request.outputs}
        if request.knobs is None and not asked & self.target.derived.keys():
            return outputs
        card = self.session.require_card()
        knobs = request.knobs or Knobs()
        result = answer(card, self.classifier.formula, outputs, knobs)
        tensors = {**outputs, "probabilities": result.probabilities, "logits": result.logits}
        tensors.update(_derive(result))
        self.statistics.abstained += int(result.abstained.sum())
        return tensors

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name,
            "versions": list(versions),
            "platform": "onnxruntime_onnx",
            "inputs": [s.to_dict() for s in self.session.inputs.values() if not s.optional],
            "outputs": [s.to_dict() for s in self.session.outputs.values()],
        }
        card = self.session.card
        if card is not None:
            body["parameters"] = {"calibrant": self._provenance()}
        return body

    def _provenance(self) -> dict[str, Any]:
        """Where the confidence comes from; the class names last, since there may be thousands."""
        card = self.session.require_card()
        calibrator = dict(card.calibrator or {})
        return {
            "sha256": self.sha256,
            "knobs": card.knobs,
            "calibrator": {k: v for k, v in calibrator.items() if _small(v)} or None,
            "class_temperatures": card.class_temperatures is not None,
            "prior": {
                "train_known": card.prior.train is not None,
                "target": "uniform" if card.prior.target is None else "given",
                "absorbed": card.prior.absorbed, "applied": card.prior.applied, "total": card.prior.total,
            },
            "abstain_below": card.abstain_below,
            "coverages": list(prediction_sets.coverages(prediction_sets.blocks(card))),
            "ood": {k: v for k, v in (card.ood or {}).items() if _small(v)} or None,
            "metrics": card.metrics,
            "precision": dict(card.precision),
            "preprocessing": card.preprocessing.to_dict(),
            "source": {k: v for k, v in card.source.items() if _small(v)},
            "optional_inputs": [s.to_dict() for s in self.session.inputs.values() if s.optional],
            "derived_outputs": [s.to_dict() for s in self.target.derived.values()],
            "classes": list(card.classes),
        }  # fmt: skip

    def _provenance_parameter(self) -> dict[str, dict[str, str]]:
        """As text, for gRPC, whose metadata message has no place for it; without the class names."""
        if self.session.card is None:
            return {}
        facts = {key: value for key, value in self._provenance().items() if key != "classes"}
        return {"calibrant": {"string_value": json.dumps(facts, default=dict)}}

    def config(self) -> dict[str, Any]:
        """The model configuration of Triton's extension, as its server would have derived it from the file."""
        batched = self.session.batched

        def side(spec: TensorSpec) -> dict[str, Any]:
            dims = spec.shape[1:] if batched else spec.shape
            kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
            return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(dims)}

        return {
            "name": self.name,
            "platform": "onnxruntime_onnx",
            "backend": "onnxruntime",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": self.target.max_rows if batched else 0,
            "input": [
                {**side(s), "format": "FORMAT_NONE", "optional": s.optional} for s in self.session.inputs.values()
            ],
            "output": [{**side(s), "label_filename": ""} for s in self.session.outputs.values()],
            "dynamic_batching": {"preferred_batch_size": [self.batcher.cap], "max_queue_delay_microseconds": 0},
            "instance_group": [{"name": self.name, "kind": "KIND_GPU" if self._on_gpu else "KIND_CPU", "count": 1}],
            "default_model_filename": self.session.path.name,
            "parameters": {
                "execution_provider": {"string_value": self.session.providers[0]},
                "threads": {"string_value": str(self.session.threads)},
                "batch_cap": {"string_value": str(self.batcher.cap)},
                **self._provenance_parameter(),
            },
        }

    @property
    def _on_gpu(self) -> bool:
        return any(word in self.session.providers[0] for word in ("CUDA", "Tensorrt", "ROCM"))

    def stats(self) -> dict[str, Any]:
        own, counts = self.statistics, self.batcher.counts

        def pair(count: int, ns: int) -> dict[str, int]:
            return {"count": count, "ns": ns}

        return {
            "name": self.name,
            "version": self.version,
            "last_inference": own.last_inference_ms,
            "inference_count": counts.rows,
            "execution_count": counts.executions,
            "inference_stats": {
                "success": pair(own.success, own.success_ns),
                "fail": pair(own.fail, own.fail_ns),
                "queue": pair(own.success + own.fail, counts.queue_ns),
                "compute_input": pair(counts.executions, counts.input_ns),
                "compute_infer": pair(counts.executions, counts.compute_ns - counts.input_ns),
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
                for rows, (runs, ns) in sorted(self.batcher.batch_sizes.copy().items())
            ],
        }


def file_stamp(path: Path) -> tuple[int, int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)


def _derived(session: Session) -> dict[str, TensorSpec]:
    if session.card is None or "logits" not in session.outputs:
        return {}
    classes = len(session.card.classes)
    specs = [
        TensorSpec("probabilities", "FP32", (-1, classes)),
        TensorSpec("label", "BYTES", (-1, 1)),
        TensorSpec("index", "INT64", (-1, 1)),
        TensorSpec("confidence", "FP32", (-1, 1)),
        TensorSpec("abstained", "BOOL", (-1, 1)),
        TensorSpec("prediction_set", "BOOL", (-1, classes)),
        TensorSpec("top", "INT64", (-1, -1)),
        TensorSpec("ood_score", "FP32", (-1, 1)),
    ]
    return {s.name: s for s in specs if s.name not in session.outputs}


def _derive(result: Result) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {
        "label": np.array([[name] for name in result.names], object),
        "index": result.labels[:, None],
        "confidence": result.confidence[:, None],
        "abstained": result.abstained[:, None],
        "top": result.top,
    }
    if result.prediction_sets is not None:
        tensors["prediction_set"] = result.prediction_sets
    if result.ood_score is not None:
        tensors["ood_score"] = result.ood_score[:, None]
    return tensors


def _small(value: Any) -> bool:
    return not isinstance(value, list | tuple | dict) or len(str(value)) < 500


def version_key(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdigit() else (-1, version)


UNLOADED = ("UNAVAILABLE", "unloaded")  # as somebody wished


class Repository:
    """Models by name, then version; the newest version answers when a caller names none."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Model]] = {}
        self.states: dict[tuple[str, str], tuple[str, str]] = {}  # of what is not ready: state, reason
        self.canaries: dict[str, tuple[str, float]] = {}  # name: version, share of the requests that name no version
        self.shadows: dict[str, list[tuple[str, float]]] = {}  # name: versions that get copies, and of what share

    def add(self, model: Model) -> Model | None:
        """Puts the model in place and gives back the one that it replaces, which has yet to be drained."""
        versions = self.models.setdefault(model.name, {})
        old = versions.get(model.version)
        versions[model.version] = model
        self.states.pop((model.name, model.version), None)
        return old

    def remove(self, name: str, version: str) -> Model:
        model = self.get(name, version)
        del self.models[name][version]
        if not self.models[name]:
            del self.models[name]
        self.states[(name, version)] = UNLOADED
        return model

    def get(self, name: str, version: str | None = None) -> Model:
        versions = self.models.get(name)
        if not versions:
            if any(known == name for known, _ in self.states):
                raise NotReady(f'model "{name}" is not loaded', retry_after=5)
            raise ModelNotFound(f'no model "{name[:80]}"; {did_you_mean(name, self.models)}')
        if version is None:
            if len(versions) == 1:
                return next(iter(versions.values()))
            apart = {v for v, _ in self.shadows.get(name, ())} | {v for v, _ in [self.canaries.get(name, ("", 0.0))]}
            usual = [m for m in versions.values() if m.version not in apart] or list(versions.values())
            return usual[0] if len(usual) == 1 else max(usual, key=lambda m: version_key(m.version))
        if version not in versions:
            raise ModelNotFound(f'model "{name}" has no version "{version[:40]}"; it has {", ".join(versions)}')
        return versions[version]

    @property
    def ready(self) -> bool:
        """Whether all models are that are meant to be."""
        return bool(self.models) and all(state == UNLOADED for state in self.states.values())

    def versions(self, name: str) -> list[str]:
        return sorted(self.models.get(name, ()), key=version_key)

    def all(self) -> list[Model]:
        return [m for name in sorted(self.models) for m in self.models[name].values()]

    def index(self) -> list[dict[str, str]]:
        rows = [{"name": m.name, "version": m.version, "state": "READY", "reason": ""} for m in self.all()]
        rows += [
            {"name": name, "version": version, "state": state, "reason": reason}
            for (name, version), (state, reason) in sorted(self.states.items())
        ]
        return rows
