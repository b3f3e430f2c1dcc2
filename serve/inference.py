"""The two ways to ask a model: tensors (V2 infer) and pictures (/predict). Runs on the event loop's thread."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl

from calibrant.errors import CalibrantError
from calibrant.serve.http import picture_api
from calibrant.serve.http.limits import Limits, compress, decompress
from calibrant.serve.models.batcher import Job
from calibrant.serve.models.repository import Model, Repository
from calibrant.serve.protocol.answer import encode
from calibrant.serve.protocol.errors import BadInput, Overloaded, QueueFull, Refusal, UnknownEncoding
from calibrant.serve.protocol.message import Request, Response
from calibrant.serve.protocol.request import InferRequest, parse

log = logging.getLogger(__name__)

LONGEST_ID = 1024
Respond = Callable[[Response], None]


class Inference:
    """Admits, checks, queues and answers requests for predictions."""

    def __init__(self, repository: Repository, limits: Limits, *, decoders: int) -> None:
        self.repository, self.limits = repository, limits
        self._threads = decoders
        self._decoders = ThreadPoolExecutor(decoders, "decode")
        self._decoding = 0
        self._serial = itertools.count()
        self._prefix = f"{time.time_ns():x}{os.getpid():x}"
        self._dice = random.Random()

    def close(self) -> None:
        self._decoders.shutdown(wait=False, cancel_futures=True)

    def infer(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        model = self.choose(names["name"], names.get("version"))
        self.admit(model)
        if b"content-encoding" not in request.headers:
            self._parse(model, request, respond)
            return
        # In a thread: what is behind a small body may be large, and the loop has other callers.
        encoding = request.headers[b"content-encoding"].decode("latin-1").strip().lower()
        future = asyncio.get_running_loop().run_in_executor(
            self._decoders, decompress, request.body, encoding, self.limits.max_decompressed
        )
        model.active += 1

        def unpacked(finished: asyncio.Future[memoryview]) -> None:
            model.active -= 1
            try:
                request.body = finished.result()
                self._parse(model, request, respond)
            except Exception as error:
                self.fail(model, request, respond, error)

        future.add_done_callback(unpacked)

    def _parse(self, model: Model, request: Request, respond: Respond) -> None:
        try:
            infer = parse(request.body, _json_length(request), model.target)
        except Exception as error:
            self.fail(model, request, respond, error)
            return
        request.body = memoryview(b"")
        try:
            self.identify(model, infer)
            self.submit(model, request, infer, lambda job: respond(self._answer(model, infer, job, request)), respond)
        except (Refusal, CalibrantError) as error:
            self.fail(model, request, respond, error)

    def identify(self, model: Model, infer: InferRequest) -> None:
        """An id of our own where the caller gave none and a label may come later."""
        if model.monitor is not None and not infer.id:
            infer.id = f"{self._prefix}-{next(self._serial)}"
        elif model.monitor is not None and infer.id is not None and len(infer.id) > LONGEST_ID:
            raise BadInput(
                f"`id` has {len(infer.id)} characters; at most {LONGEST_ID} are kept with each row of a request"
            )

    def choose(self, name: str, version: str | None) -> Model:
        if version is None and (canary := self.repository.canaries.get(name)) is not None:
            chosen, share = canary
            if self._dice.random() < share and chosen in self.repository.models.get(name, {}):
                return self.repository.get(name, chosen)
        return self.repository.get(name, version)

    def admit(self, model: Model) -> None:
        """Refuses at once what would wait too long: a caller can go elsewhere now, not in five seconds."""
        wait = model.batcher.predicted_wait
        if wait > self.limits.max_wait:
            model.statistics.turned_away += 1
            raise QueueFull(f"the queue is full: about {wait:.1f} s of work is ahead", retry_after=wait / 2)

    def submit(
        self,
        model: Model,
        request: Request,
        infer: InferRequest,
        answer: Callable[[Job], None],
        respond: Respond,
    ) -> None:
        """Queues the request; `answer` is called with its finished job, and what it raises is the answer instead."""
        model.check(infer)

        def done(job: Job) -> None:
            model.active -= 1
            request.job = None  # they hold each other, and their tensors would wait for the garbage collector
            try:
                if job.cancelled:
                    model.statistics.cancelled += 1
                    return
                if job.error is not None:
                    raise job.error
                answer(job)
                model.succeeded(request.received, infer.rows)
                self._watch(model, infer, job)
            except Exception as error:
                self.fail(model, request, respond, error)

        seconds = self.limits.request_seconds
        if infer.timeout is not None:
            seconds = min(seconds, infer.timeout)
        job = Job(infer.feeds, infer.rows, model.needed_outputs(infer), done, request.received + seconds)
        request.job = job
        model.active += 1
        try:
            model.batcher.put(job)
        except Refusal:
            model.active -= 1
            raise
        self._shadow(model, infer, job)

    def _answer(self, model: Model, infer: InferRequest, job: Job, request: Request) -> Response:
        start = time.perf_counter_ns()
        tensors = model.finish(infer, job.result or {})
        encoded = encode(model.name, model.version, infer, tensors, model.class_names)
        response = Response(200, encoded.parts)
        if encoded.header_length is not None:
            response.content_type = b"application/octet-stream"
            response.headers.append((b"inference-header-content-length", str(encoded.header_length).encode()))
        # Only for a caller that names gzip or deflate alone, as Triton's client does when asked to. Browsers and HTTP
        # libraries offer compression with everything; for a few hundred bytes it would cost more than it saves.
        accepted = request.headers.get(b"accept-encoding")
        if accepted in (b"gzip", b"deflate"):
            response.parts = [compress(response.parts, accepted.decode())]
            response.headers.append((b"content-encoding", accepted))
        model.statistics.output_ns += time.perf_counter_ns() - start
        return response

    def _watch(self, model: Model, infer: InferRequest, job: Job) -> None:
        """Hands the answer to the model's monitor."""
        monitor = model.monitor
        if monitor is not None and infer.id is not None and job.result is not None and "logits" in job.result:
            if monitor.config.sample < 1.0 and self._dice.random() >= monitor.config.sample:
                return
            monitor.record(infer.id, job.result["logits"], job.finished - job.queued)

    def _shadow(self, model: Model, infer: InferRequest, job: Job) -> None:
        """A copy of the request for a version that answers nobody, when it has nothing else to do."""
        for version, share in self.repository.shadows.get(model.name, ()):
            shadow = self.repository.models.get(model.name, {}).get(version)
            if shadow is None or shadow is model or self._dice.random() >= share:
                continue
            if shadow.target.inputs != model.target.inputs or shadow.batcher.predicted_wait > 0.1:
                shadow.statistics.turned_away += 1
                continue
            self._copy(shadow, infer, job)

    def _copy(self, shadow: Model, infer: InferRequest, job: Job) -> None:
        def done(copy: Job) -> None:
            shadow.active -= 1
            if copy.result is not None:
                shadow.statistics.shadowed += 1
                self._watch(shadow, infer, copy)

        shadow.active += 1
        shadow.batcher.put(Job(infer.feeds, infer.rows, shadow.needed_outputs(infer), done, job.deadline))

    # ---- pictures from people

    def predict(self, request: Request, respond: Respond, names: dict[str, str]) -> None:
        query = _query(request.target)
        name = names.get("name") or (query.pop("model") if "model" in query else self._only_model())
        request_id = query.pop("id", None)
        model = self.choose(name, names.get("version"))
        self.admit(model)
        if request_id == "":
            raise BadInput("`id` is empty; leave it out or give one")
        if b"content-encoding" in request.headers:
            raise UnknownEncoding("pictures are compressed already; send them without Content-Encoding")
        asked = picture_api.read(request.body, request.headers.get(b"content-type", b""), query, self.limits)
        request_id = asked.id or request_id
        if request_id is not None and len(request_id) > LONGEST_ID:
            raise BadInput(f"`id` has {len(request_id)} characters; at most {LONGEST_ID} are kept")
        card = model.session.require_card()
        if self._decoding >= 64 * self._threads:
            raise Overloaded("too many pictures are waiting to be decoded", retry_after=1)
        if model.monitor is not None and request_id is None:
            request_id = f"{self._prefix}-{next(self._serial)}"
        self._decoding += 1
        model.active += 1  # the model must not be retired while its pictures are being decoded
        future = asyncio.get_running_loop().run_in_executor(
            self._decoders, picture_api.decode, card, asked.images, self.limits
        )

        def answer(job: Job) -> None:
            result = picture_api.result(model, asked.knobs, job.result or {})
            respond(Response.json(picture_api.body(model, asked, result, request_id)))

        def decoded(finished: asyncio.Future[Any]) -> None:
            self._decoding -= 1
            model.active -= 1
            try:
                feed = finished.result()
                infer = InferRequest(model.classifier.feeds(feed), len(feed), [], request_id, asked.knobs)
                infer.pictures = True
                self.submit(model, request, infer, answer, respond)
            except Exception as error:
                self.fail(model, request, respond, error)

        future.add_done_callback(decoded)

    def _only_model(self) -> str:
        models = sorted(self.repository.models)
        if len(models) != 1:
            raise BadInput(f"there are {len(models)} models; choose one with ?model=NAME: {', '.join(models)}")
        return models[0]

    def fail(self, model: Model, request: Request, respond: Respond, error: Exception) -> None:
        model.failed(request.received)
        refusal = Refusal.of(error)
        if refusal is not error and refusal.status == 500:
            log.error("a request failed", exc_info=error)
        respond(Response.error(refusal))


def _query(target: bytes) -> dict[str, str]:
    """Parameters of the address; an empty one is kept, so that it is refused and not taken as left out."""
    pairs = parse_qsl(target.partition(b"?")[2].decode("ascii", "replace"), keep_blank_values=True)
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        again = next(name for name in names if names.count(name) > 1)
        raise BadInput(f'the parameter "{again[:60]}" is there twice')
    return found


def _json_length(request: Request) -> int | None:
    length = request.headers.get(b"inference-header-content-length")
    if length is None:
        return None
    if not length.isdigit() or len(length) > 18:
        raise BadInput("Inference-Header-Content-Length must be the number of bytes of the JSON")
    return int(length)
