"""OpenTelemetry traces of a share of the requests: the request, and in it its queue, its run and its answer.

Times are taken anyway, so a trace is written when its request has been answered, from those. Which requests are traced
is decided here, by the caller's trace id where there is one: by it all servers on the way choose the same ones. That a
stranger calls his request sampled is no order, since each trace costs time.

Where to traces are sent is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, ...).
"""

from __future__ import annotations

import os
import random
import re
import time
from typing import Any

from calibrant._version import __version__
from calibrant.errors import MissingExtra

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_WORDS = 1 << 64


class Traces:
    """`provider`: a TracerProvider that records whatever it is given; it is shut down with the server."""

    def __init__(self, provider: Any, share: float) -> None:
        self._provider, self._share = provider, share
        self._tracer = provider.get_tracer("calibrant.serve", __version__)
        self._dice = random.Random()

    @classmethod
    def to_collector(cls, share: float) -> Traces:
        """Sent as OTLP over HTTP, in batches, from a thread."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_ON
        except ImportError as error:
            raise MissingExtra("calibrant serve --trace-share", "otel", error.name or "opentelemetry") from None
        who = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "calibrant"), "service.version": __version__}
        provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource.create(who), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider, share)

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()

    def chooses(self, trace_id: int | None) -> bool:
        """Is a request traced? By the last 64 bits of the caller's trace id, as OpenTelemetry's own samplers do."""
        if trace_id is None:
            return self._dice.random() < self._share
        return trace_id % _WORDS < self._share * _WORDS

    def answered(
        self,
        name: str,
        traceparent: bytes,
        received: float,
        ran: tuple[float, float, float, int] | None,
        *,
        failed: bool = False,
        attributes: dict[str, Any],
    ) -> None:
        """A request that came at `received` (time.monotonic) has just been answered. `ran`: of its ticket."""
        parent = parent_of(traceparent)
        if not self.chooses(None if parent is None else parent[0]):
            return
        from opentelemetry import trace

        now = time.monotonic()
        zero = time.time_ns() - round(1e9 * now)

        def at(seconds: float) -> int:
            return zero + round(1e9 * seconds)

        context = None
        if parent is not None:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            caller = trace.NonRecordingSpan(trace.SpanContext(*parent, is_remote=True, trace_flags=flags))
            context = trace.set_span_in_context(caller)
        kind = trace.SpanKind.SERVER
        whole = self._tracer.start_span(name, context, kind, attributes, start_time=at(received))
        if failed:
            whole.set_status(trace.Status(trace.StatusCode.ERROR))
        inside = trace.set_span_in_context(whole)
        if ran is not None and ran[2]:
            times = (*ran[:3], now)
            parts = zip(("queue", "compute", "answer"), times, times[1:], strict=False)
            for part, start, end in parts:
                more = {"calibrant.rows": ran[3]} if part == "compute" else None
                self._tracer.start_span(part, inside, attributes=more, start_time=at(start)).end(at(end))
        whole.end(at(now))


def parent_of(traceparent: bytes) -> tuple[int, int] | None:
    """Trace and span of the caller, of W3C's header; None where it is none: then a trace of our own begins."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or traceparent[:2] == b"ff" or (traceparent[:2] == b"00" and found[4]):
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    return (trace_id, span_id) if trace_id and span_id else None
