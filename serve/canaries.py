"""Canaries that are promoted or rolled back: by their rules, or because an operator says so.

Every process draws who answers and counts what came of it. The one that takes the labels adds the others' counts to its
own, judges (calibration.monitoring.canary) and writes its decisions to a file that the others read, and that holds over
a restart: a file that was rolled back does not come back under the same name until its bytes change.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from calibrant import atomic
from calibrant.calibration.monitoring.canary import (
    CanaryTrial,
    Decision,
    Judgement,
    Labelled,
    Traffic,
    Version,
)
from calibrant.calibration.monitoring.canary_rules import CanaryRules
from calibrant.serve.config import Share
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import NEWEST, Canary, Repository
from calibrant.serve.processes.other_workers import OtherWorkers
from calibrant.serve.protocol.errors import BadInput, NotFound

log = logging.getLogger(__name__)

FILE = "canaries.json"
SECONDS = 1.0  # between looks
DONE: dict[Decision, str] = {"promote": "promoted", "roll back": "rolled back"}


@dataclass
class _Running:
    """A canary and the version beside it, by their files: other bytes are another trial."""

    files: tuple[str, str]  # old, canary
    trial: CanaryTrial
    since: float
    beside: str  # the old version
    start: list[tuple[int, int]] = field(default_factory=list)  # rows and rows that were no numbers, of each
    said: Judgement | None = None


@dataclass(frozen=True)
class Decided:
    version: str
    sha256: str
    state: str  # of DONE
    reason: str
    time: float
    over: tuple[str, ...] = ()  # newer versions that it comes before, where it was promoted

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Canaries:
    """`round` every second; the rest when somebody asks."""

    def __init__(
        self,
        repository: Repository,
        rules: CanaryRules | None,
        *,
        others: OtherWorkers | None = None,
        folder: Path | None = None,
    ) -> None:
        """`rules`: None decides nothing by itself. `folder`: where decisions are kept."""
        self.repository, self.rules, self.others = repository, rules, others
        self._file = None if folder is None else folder / FILE
        self._read_at = 0
        self._running: dict[str, _Running] = {}
        self.decided: dict[str, dict[str, Decided]] = {}  # by name and version
        self.counts = {"promoted": 0, "rolled back": 0}  # since the start
        self._learn()

    @property
    def leads(self) -> bool:
        return self.others is None or self.others.leads

    def begin(self, shares: Sequence[Share]) -> None:
        """After the models are loaded, with what was decided about these files before."""
        for canary in shares:
            if canary.version == NEWEST:
                self.repository.to_try[canary.name] = canary.share
            else:
                self.repository.canaries[canary.name] = Canary(canary.version, canary.share)
        self._settled()
        for name, share in self.repository.to_try.items():
            versions = [v for v in self.repository.versions(name) if (name, v) not in self.repository.rolled_back]
            if len(versions) < 2 or name in self.repository.canaries:
                continue
            version = self.repository.get(name).version
            done = self.decided.get(name, {}).get(version)
            if done is None:  # nothing is known of the newest; of another it is what answered before that came
                undecided = version == self.repository.versions(name)[-1]
            else:
                undecided = done.sha256 != self.repository.sha256(name, version)
            if undecided:
                self.repository.canaries[name] = Canary(version, share)

    # ---- every second

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                await self.round()
            except Exception:
                log.exception("looking after canaries failed; serving goes on")

    async def round(self) -> None:
        if not self.leads:
            self._learn()
        for name, canary in list(self.repository.canaries.items()):
            pair = self.repository.pair(name)
            if pair is None:
                continue
            for model in pair:
                if model.trial is None:
                    model.trial = Traffic()
                if model.monitor is not None and model.monitor.trial is None:
                    model.monitor.trial = Labelled()
            if self.leads:
                await self._judge(name, canary, pair)

    async def _judge(self, name: str, canary: Canary, pair: tuple[Model, Model]) -> None:
        running = self._of(name, pair)
        if self.rules is None:
            return
        traffic = await self._traffic(name, pair)
        versions = [_version(model, t, start) for model, t, start in zip(pair, traffic, running.start, strict=True)]
        running.said = await asyncio.to_thread(running.trial.look, *versions)
        decision, reason = running.said.decision, running.said.reason
        late = self.rules.hours is not None and time.time() - running.since > 3600 * self.rules.hours
        if decision is None and late:
            decision, reason = "roll back", f"undecided after {self.rules.hours:g} hours ({reason})"
        if decision is not None and self.repository.canaries.get(name) == canary:
            self.decide(name, decision, reason)

    def _of(self, name: str, pair: tuple[Model, Model]) -> _Running:
        files = (pair[0].sha256, pair[1].sha256)
        running = self._running.get(name)
        if running is None or running.files != files:
            trial = CanaryTrial(self.rules or CanaryRules())
            start = [(0, 0) if m.monitor is None else (m.monitor.rows, m.monitor.not_finite) for m in pair]
            running = self._running[name] = _Running(files, trial, time.time(), pair[0].version, start)
            for model in pair:  # a file that changed makes another trial of both
                model.trial = Traffic()
                if model.monitor is not None:
                    model.monitor.trial = Labelled()
            log.info("%s version %s is a canary beside version %s", name, pair[1].version, pair[0].version)
        return running

    async def _traffic(self, name: str, pair: tuple[Model, Model]) -> list[Traffic]:
        """Of all workers that serve the same files."""
        total = []
        told = [] if self.others is None else await self.others.canaries()
        for model in pair:
            sum_ = Traffic()
            sum_.add(model.trial or Traffic())
            for report in told:
                entry = report.get(name, {}).get(model.version)
                if entry is not None and entry["sha256"] == model.sha256:
                    sum_.add(Traffic.from_dict(entry))
            total.append(sum_)
        return total

    # ---- decisions

    def decide(self, name: str, decision: Decision, reason: str) -> None:
        """Of a canary that is running."""
        canary = self.repository.canaries[name]
        model = self.repository.get(name, canary.version)
        over = tuple(self.repository.newer(name, canary.version)) if decision == "promote" else ()
        done = Decided(canary.version, model.sha256, DONE[decision], reason, round(time.time(), 3), over)
        self.decided.setdefault(name, {})[canary.version] = done
        self.counts[done.state] += 1
        self._apply(name, done)
        self._keep()
        level = logging.INFO if decision == "promote" else logging.WARNING
        log.log(level, "%s version %s is %s: %s", name, canary.version, done.state, reason)

    def ask(self, name: str, decision: str) -> dict[str, Any]:
        """What an operator says."""
        if decision not in DONE:
            raise BadInput('`decision` must be "promote" or "roll back"')
        if name not in self.repository.canaries:
            raise NotFound(f"{name[:80]} has no canary now")
        self.decide(name, "promote" if decision == "promote" else "roll back", "as an operator said")
        return self.report(name)

    def _apply(self, name: str, done: Decided) -> None:
        self._running.pop(name, None)
        self.repository.settle(
            name, done.version, done.sha256, over=done.over if done.state == DONE["promote"] else None
        )

    def _settled(self) -> None:
        """What was decided about the files that are loaded."""
        for name, versions in self.decided.items():
            for done in sorted(versions.values(), key=lambda d: d.time):
                loaded = self.repository.models.get(name, {}).get(done.version)
                if loaded is not None and loaded.sha256 == done.sha256:
                    self._apply(name, done)

    def _keep(self) -> None:
        if self._file is None:
            return
        values = {name: [d.to_dict() for d in versions.values()] for name, versions in self.decided.items()}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_json(self._file, values)
        except OSError as error:
            log.error("%s cannot be written (%s): the decision holds until the server ends", self._file, error)

    def _learn(self) -> None:
        """Reads decisions: at the start, and those of the process that makes them."""
        if self._file is None:
            return
        try:
            changed = self._file.stat().st_mtime_ns
            if changed == self._read_at:
                return
            values = json.loads(self._file.read_text())
            decided = {n: {d["version"]: _decided(d) for d in rows} for n, rows in values.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.error("%s cannot be read (%s): earlier decisions about canaries are lost", self._file, error)
            return
        self._read_at, self.decided = changed, decided
        self._settled()

    # ---- what is told

    def tally(self) -> dict[str, Any]:
        """For the worker that judges."""
        return {
            name: {m.version: {**m.trial.to_dict(), "sha256": m.sha256} for m in pair if m.trial is not None}
            for name in self.repository.canaries
            if (pair := self.repository.pair(name)) is not None
        }

    def report(self, name: str) -> dict[str, Any]:
        """GET /v2/repository/models/NAME/canary."""
        done = [d.to_dict() for d in sorted(self.decided.get(name, {}).values(), key=lambda d: d.time)]
        body: dict[str, Any] = {"model": name, "canary": None, "decided": done}
        canary = self.repository.canaries.get(name)
        if canary is not None:
            running = self._running.get(name)
            said = None if running is None else running.said
            body["canary"] = {
                "version": canary.version, "share": canary.share, "automatic": self.rules is not None,
                "beside": None if running is None else running.beside,
                "since": None if running is None else round(running.since, 3),
                "waits_for": None if said is None else said.reason,
                "figures": [] if said is None else [f.to_dict() for f in said.findings],
            }  # fmt: skip
        return body


def _decided(values: dict[str, Any]) -> Decided:
    return Decided(**{**values, "over": tuple(values["over"])})


def _version(model: Model, traffic: Traffic, start: tuple[int, int]) -> Version:
    monitor = model.monitor
    if monitor is None:
        return Version(traffic, traffic.answered)
    with monitor.locked():
        labelled, alarm = monitor.trial or Labelled(), monitor.alarms.calibration.on
        rows, bad = monitor.rows - start[0], monitor.not_finite - start[1]
        return Version(traffic, rows + bad, bad, labelled.copy(), alarm)
