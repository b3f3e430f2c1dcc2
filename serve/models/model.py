"""One version of a model: its file, loaded and measured, and how a request to it is checked and answered."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.errors import ConfigError
from calibrant.serve.engine import curve_store, prediction_sets
from calibrant.serve.engine.batch_curve import BatchCurve
from calibrant.serve.engine.classifier import Classifier
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.result import answer, require_energy
from calibrant.serve.engine.session import Arrays, Session
from calibrant.serve.models import derived
from calibrant.serve.models.acceptance import check_golden_rows
from calibrant.serve.models.batcher import Batcher
from calibrant.serve.models.folder import NAME
from calibrant.serve.models.job import Job
from calibrant.serve.models.statistics import Statistics
from calibrant.serve.protocol.errors import BadInput, NotFound
from calibrant.serve.protocol.request import InferRequest, Target

if TYPE_CHECKING:
    from calibrant.calibration.monitoring.canary import Traffic
    from calibrant.serve.monitor.monitor import Monitor

log = logging.getLogger(__name__)
NOT_WATCHED = "its labels are independent: the monitor and its feedback are for one class a row"
_MEASURING = threading.Lock()  # one at a time, or they would measure each other


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
    size: int = 0  # bytes of the file
    used: float = field(default_factory=time.monotonic)  # when somebody asked last
    monitor: Monitor | None = None
    trial: Traffic | None = None  # while it is a canary, or beside one

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
        shared_threads: bool = False,
        seconds: float = 0.8,
    ) -> Model:
        """`shared_threads`: of all models, which providers.share_threads has made. `seconds`: of measuring."""
        stamp = file_stamp(Path(path))
        session = Session(path, providers=providers, threads=threads, shared_threads=shared_threads)
        sha256 = session.sha256()
        key = curve_store.key_of(session, sha256)
        known = curve_store.read(key) if session.batched else None
        with _MEASURING:
            session.warm_up(known=known, budget=seconds)
            check_golden_rows(session)
        if session.batched and known is None:
            curve_store.write(key, session.curve)
        name = name or session.own_name
        if not NAME.fullmatch(name):
            raise ConfigError(
                f'"{name}" cannot be a model name', where=path, fix="give --name with letters, digits, . _ - only"
            )
        on_cpu = session.providers[0] == "CPUExecutionProvider"

        def better(curve: BatchCurve) -> None:
            log.info("%s: batch cap %d now, chosen from %s", session.path.name, curve.cap, curve.said())
            curve_store.write(key, curve)

        batcher = Batcher(session, cap=cap, deliver=deliver, soon=soon if on_cpu else None, better=better)
        inputs, outputs, free = session.asked()
        target = Target(name, inputs, outputs, derived.specs(session), free, max_rows, session.card is not None)
        return cls(name, version, session, batcher, target, sha256=sha256, stamp=stamp, size=stamp[1])

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
            if self.monitor is not None and self.monitor.features is not None and self.monitor.features.watched:
                wanted = (*wanted, "features")
            names += [n for n in wanted if n in self.session.outputs and n not in names]
        needed = tuple(names) or self.graph_outputs[:1]
        if request.plan is not None:  # a plan belongs to this model's target, and dies with it
            request.plan.needed = needed
        return needed

    def require_monitor(self) -> Monitor:
        if self.monitor is None:
            card = self.session.card
            why = "its file has no calibrant block" if card is None else "start the server with --monitor"
            why = NOT_WATCHED if card is not None and card.independent else why
            raise NotFound(f"{self.name} is not monitored; {why}")
        return self.monitor

    def succeeded(self, received: float, job: Job, output_ns: int) -> float:
        """Counts a request that is answered; its seconds."""
        own, seconds = self.statistics, time.monotonic() - received
        own.success += 1
        own.rows += job.rows
        own.success_ns += int(seconds * 1e9)
        own.queue_ns += int((job.started - job.queued) * 1e9)
        own.input_ns += job.input_ns
        own.infer_ns += job.infer_ns
        own.output_ns += output_ns
        own.latency.add(seconds)
        own.last_inference_ms = int(time.time() * 1000)
        return seconds

    def failed(self, received: float) -> None:
        self.statistics.fail += 1
        self.statistics.fail_ns += int((time.monotonic() - received) * 1e9)

    def check(self, request: InferRequest) -> None:
        """Refuses knobs and derived outputs that this file has no answer to, before the request may join a batch."""
        plan = request.plan
        if plan is not None and plan.plain:
            return
        asked = {w.name for w in request.outputs} & self.target.derived.keys()
        if request.knobs is None and not asked:
            if plan is not None:
                plan.plain = True
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
        if request.plan is not None and request.plan.plain:
            return outputs
        if request.knobs is None and not any(w.name in self.target.derived for w in request.outputs):
            return outputs
        card = self.session.require_card()
        knobs = request.knobs or Knobs()
        result = answer(card, self.classifier.formula, outputs, knobs)
        tensors = {**outputs, "probabilities": result.probabilities, "logits": result.logits}
        tensors.update(derived.tensors(result))
        self.statistics.abstained += int(result.abstained.sum())
        return tensors


def file_stamp(path: Path) -> tuple[int, int, int]:
    try:
        info = path.stat()
    except OSError:
        return (0, 0, 0)
    return (info.st_ino, info.st_size, info.st_mtime_ns)
