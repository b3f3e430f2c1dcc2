"""Requests that differ from one that was seen in their id and their tensor only: callers send them again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibrant.serve.grpc import wire
from calibrant.serve.grpc.messages import Parts
from calibrant.serve.protocol.request import InferRequest, Plan, Target
from calibrant.serve.protocol.tensor_values import from_bytes

MOST = 256  # that are remembered
LONGEST = 2048  # bytes before the tensor
_NAME, _VERSION, _ID = 0x0A, 0x12, 0x1A  # first bytes of fields 1, 2 and 3


@dataclass(frozen=True, slots=True)
class Known:
    name: str  # of the model
    version: str | None
    naming: bytes  # the fields that say so
    rest: bytes  # what stands between the id and the tensor

    @property
    def key(self) -> bytes:
        return self.naming + self.rest

    def follow(self, data: memoryview, plan: Plan, id_: str | None) -> InferRequest:
        """The request that these bytes are."""
        [(spec, shape, size)] = plan.inputs
        known = plan.request
        feeds = {spec.name: from_bytes(data[len(data) - size :], spec, shape)}
        return InferRequest(
            feeds, known.rows, known.outputs, id_, known.knobs, known.timeout, known.parameters, plan=plan
        )


class KnownRequests:
    """By the number of bytes behind the id, which says how many of them stand before the tensor."""

    def __init__(self) -> None:
        self._by_size: dict[int, Known] = {}

    def find(self, data: memoryview) -> tuple[Known, str | None] | None:
        """With the id."""
        before, behind = _around_id(data)
        known = self._by_size.get(len(data) - behind)
        if known is None or data[:before] != known.naming or data[behind : behind + len(known.rest)] != known.rest:
            return None
        return known, wire.text(data[before + 2 : behind]) or None if behind > before else None

    def learn(self, data: memoryview, parts: Parts, request: InferRequest, target: Target) -> None:
        """A request with one tensor, at its end, and an id where clients write it."""
        if len(parts.raw) != 1 or not parts.raw_last:
            return
        before, behind = _around_id(data)
        size = len(parts.raw[0])
        naming, rest = bytes(data[:before]), bytes(data[behind : len(data) - size])
        if len(rest) > LONGEST or (request.id is not None) != (behind > before):
            return
        for cache in (self._by_size, target.plans):
            if len(cache) >= MOST:
                cache.clear()
        known = self._by_size[len(data) - behind] = Known(parts.name, parts.version, naming, rest)
        [name] = request.feeds
        bare = replace(request, feeds={}, id=None)
        plan = Plan([(target.inputs[name], request.feeds[name].shape, size)], size, bare)
        request.plan = bare.plan = target.plans[known.key] = plan


def _around_id(data: memoryview) -> tuple[int, int]:
    """Where the fields of name and version end, and the id behind them: short ones, as clients write them."""
    at, end = 0, len(data) - 1
    for first in (_NAME, _VERSION):
        if at < end and data[at] == first and data[at + 1] < 128:
            at += 2 + data[at + 1]
    if at < end and data[at] == _ID and data[at + 1] < 128:
        return min(at, end), min(at + 2 + data[at + 1], end + 1)
    return min(at, end), min(at, end)
