"""What one worker asks the others, so that a caller need not know which of them it reached.

Every worker answers the others on a socket of the file system that only its own user can open, with the handlers that
answer callers. Statistics add up, metrics are listed by worker, loading and unloading happen everywhere, labels and the
monitor's report are the leader's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from calibrant.serve.processes.workers import LEADER, Seat
from calibrant.serve.protocol.errors import NotReady, Refusal

log = logging.getLogger(__name__)

FLUSH = "/internal/flush"
CANARIES = "/internal/canaries"
_PATIENCE = 30.0  # seconds; labels wait for a log that is read and for a version that is loaded


@dataclass(frozen=True)
class WorkerAnswer:
    worker: int
    status: int
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


class OtherWorkers:
    """All but this one."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.leads = seat.number == LEADER
        self._silent: set[int] = set()  # said once, not at every request, until they answer again

    async def statistics(self, name: str | None, version: str | None) -> list[list[dict[str, Any]]]:
        """Of each of the others."""
        path = "/v2/models" if name is None else f"/v2/models/{quote(name, safe='')}"
        path += "" if version is None else f"/versions/{quote(version, safe='')}"
        answers = await self._all("GET", f"{path}/stats")
        return [a.json()["model_stats"] for a in answers if a.status == 200]

    async def metrics(self) -> dict[int, str]:
        """The exposition of each of the others, by its number."""
        return {a.worker: a.body.decode() for a in await self._all("GET", "/metrics") if a.status == 200}

    async def canaries(self) -> list[dict[str, Any]]:
        """What each of the others has counted of canaries and of the versions beside them."""
        return [a.json() for a in await self._all("GET", CANARIES) if a.status == 200]

    async def flush(self) -> None:
        await self._all("POST", FLUSH)

    async def load(self, name: str) -> None:
        await self._repeat(name, "load")

    async def unload(self, name: str) -> None:
        await self._repeat(name, "unload")

    async def _repeat(self, name: str, verb: str) -> None:
        """The same in every process; what the first that refuses says."""
        for answer in await self._all("POST", f"/v2/repository/models/{quote(name, safe='')}/{verb}", b"{}"):
            if answer.status != 200:
                raise Refusal.with_status(answer.status, f"worker {answer.worker}: {answer.json()['error']}")

    async def _all(self, method: str, target: str, body: bytes = b"") -> list[WorkerAnswer]:
        """Of each that is there; one that is being replaced is left out."""
        others = [n for n in range(self.seat.workers) if n != self.seat.number]
        answers = await asyncio.gather(*(self._ask(n, method, target, body) for n in others))
        return [answer for answer in answers if answer is not None]

    async def leader(self, method: str, target: str, body: bytes = b"") -> WorkerAnswer:
        answer = await self._ask(LEADER, method, target, body)
        if answer is None:
            raise NotReady("the worker that keeps the labels is being replaced; try again", retry_after=2)
        return answer

    async def _ask(self, number: int, method: str, target: str, body: bytes) -> WorkerAnswer | None:
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_unix_connection(str(self.seat.socket(number)))
                try:
                    head = f"{method} {target} HTTP/1.1\r\nHost: worker\r\nContent-Length: {len(body)}\r\n"
                    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
                    raw = await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            if number not in self._silent:
                self._silent.add(number)
                log.warning("worker %d does not answer (%s)", number, error or type(error).__name__)
            return None
        self._silent.discard(number)
        top, gap, content = raw.partition(b"\r\n\r\n")
        return WorkerAnswer(number, int(top[9:12]), content) if gap else None


def merged_metrics(texts: Mapping[int, str]) -> str:
    """Expositions of several workers as one: each sample with the label `worker`, each family with its HELP once."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for worker, text in sorted(texts.items()):
        name = ""
        for line in text.splitlines():
            if line.startswith("# "):
                name = line.split(" ", 3)[2]
                head, _ = families.setdefault(name, ([], []))
                if line not in head:
                    head.append(line)
            elif line:
                families[name][1].append(_labelled(line, worker))
    return "".join("".join(f"{line}\n" for line in head + samples) for head, samples in families.values())


def _labelled(sample: str, worker: int) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f'{name}{{worker="{worker}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{worker="{worker}"}} {value}'


def merged_statistics(reports: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Counts and nanoseconds of the same model and version added up."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for report in reports:
        for entry in report:
            key = (entry["name"], entry["version"])
            merged[key] = _sum(merged[key], entry) if key in merged else entry
    return list(merged.values())


def _sum(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for key, value in a.items():
        if key == "last_inference":
            total[key] = max(value, b[key])
        elif key == "batch_stats":
            sizes = {row["batch_size"]: row for row in value}
            for row in b[key]:
                size = row["batch_size"]
                sizes[size] = {**_sum(sizes[size], row), "batch_size": size} if size in sizes else row
            total[key] = [sizes[size] for size in sorted(sizes)]
        elif isinstance(value, dict):
            total[key] = _sum(value, b[key])
        else:
            total[key] = value + b[key] if isinstance(value, int) else value
    return total
