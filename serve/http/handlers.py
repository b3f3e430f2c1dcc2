"""What each address answers: HTTP to the two planes and back. The records in routes.py name these."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from calibrant.serve.engine.session import Arrays
from calibrant.serve.http import pages, picture_api
from calibrant.serve.http.exposition import expose
from calibrant.serve.http.message import EMPTY, Request, Respond, Response
from calibrant.serve.http.prometheus import Exposition
from calibrant.serve.inference import Ticket
from calibrant.serve.models.model import Model
from calibrant.serve.monitor.labels import read_labels
from calibrant.serve.processes.other_workers import CANARIES, FLUSH, merged_metrics
from calibrant.serve.protocol.answer import encode
from calibrant.serve.protocol.body import is_costly, json_object, parse, refuse_large_json
from calibrant.serve.protocol.content_encoding import compress, decompress
from calibrant.serve.protocol.errors import BadInput, NotFound, PutAway, Refusal, UnknownEncoding
from calibrant.serve.protocol.pictures import Pictures
from calibrant.serve.protocol.request import InferRequest

if TYPE_CHECKING:
    from calibrant.serve.http.app import Application

LARGE_FORM = 1 << 20  # bytes above which pictures are told apart away from the loop
MOST_FEEDBACK = 4 << 20  # bytes of labels, once decompressed
Names = Mapping[str, str]
Later = Coroutine[Any, Any, Response]

# ---- health and metadata


def live(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.json({"live": True})


def ready(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    is_ready = app.control.ready
    return Response.json({"ready": is_ready, "live": True}, 200 if is_ready else 503)


def model_ready(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    accepting = app.control.accepting
    try:
        name = app.control.model(**_which(names)).name
    except PutAway as away:  # it answers whoever asks for more
        name = away.key[0]
    return Response.json({"name": name, "ready": accepting}, 200 if accepting else 503)


def server(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.json(app.control.server())


def metadata(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.json(app.control.metadata(**_which(names)))


def config(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.json(app.control.config(**_which(names)))


async def statistics(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    name, version = names.get("name"), names.get("version")
    return Response.json({"model_stats": await app.control.statistics(name, version, everywhere=not request.internal)})


def page(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.html(pages.predict_page(sorted(app.control.repository.models)))


def docs(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.html(pages.docs_page(app.document()))


def openapi(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    return Response.json(app.document())


async def metrics(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    out, kind = Exposition(), b"text/plain; version=0.0.4; charset=utf-8"
    watched = [m.monitor for m in app.control.repository.all() if m.monitor is not None]
    # In a thread: a report takes a while, and longer where the monitor is just writing to its disk.
    reports = await asyncio.to_thread(lambda: {id(m): m.report() for m in watched if m.counts})
    expose(out, app, reports)
    others = app.control.others
    if others is None or request.internal:
        return Response(200, [out.text().encode()], kind)
    return Response(200, [merged_metrics({others.seat.number: out.text(), **await others.metrics()}).encode()], kind)


# ---- the repository


def index(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    only_ready = bool(len(request.body)) and json_object(request.body).get("ready") is True
    return Response.json(app.control.index(only_ready=only_ready))


def load(app: Application, request: Request, names: Names, respond: Respond) -> Later:
    _check_admin(app, request)
    return _done(app.control.load(names["name"], everywhere=not request.internal))


def unload(app: Application, request: Request, names: Names, respond: Respond) -> Later:
    _check_admin(app, request)
    return _done(app.control.unload(names["name"], everywhere=not request.internal))


def _check_admin(app: Application, request: Request) -> None:
    app.control.require_admin()
    parameters = json_object(request.body).get("parameters") if len(request.body) else None
    app.control.refuse_files(parameters if isinstance(parameters, dict) else ())


async def _done(work: Coroutine[Any, Any, None]) -> Response:
    await work
    return Response.json({})


# ---- labels and what they tell


def feedback(app: Application, request: Request, names: Names, respond: Respond) -> Later:
    model = app.control.model(**_which(names))
    model.require_monitor()
    if (encoding := _content_encoding(request)) is not None:
        request.body = decompress(request.body, encoding, MOST_FEEDBACK)
    given = read_labels(request.body, model.class_names or ())
    if not app.control.leads:
        return _by_the_leader(app, request)
    return _json(app.control.label(model, given, pinned="version" in names))


def monitor(app: Application, request: Request, names: Names, respond: Respond) -> Later:
    model = app.control.model(**_which(names))
    model.require_monitor()
    if not app.control.leads:
        return _by_the_leader(app, request)
    return _json(app.control.report(model, pinned="version" in names))


def canary(app: Application, request: Request, names: Names, respond: Respond) -> Response | Later:
    if not app.control.leads:
        return _by_the_leader(app, request)
    return Response.json(app.control.canary(names["name"]))


def decide(app: Application, request: Request, names: Names, respond: Respond) -> Response | Later:
    app.control.require_admin()
    decision = json_object(request.body).get("decision")
    if not app.control.leads:
        return _by_the_leader(app, request)
    return Response.json(app.control.require_canaries().ask(names["name"], str(decision)))


def canary_counts(app: Application, request: Request, names: Names, respond: Respond) -> Response:
    if not request.internal:
        raise NotFound(f'nothing is served at "{CANARIES}"')
    return Response.json(app.control.require_canaries().tally())


def flush(app: Application, request: Request, names: Names, respond: Respond) -> Later:
    if not request.internal:
        raise NotFound(f'nothing is served at "{FLUSH}"')
    return _done(asyncio.to_thread(app.control.flush))


async def _by_the_leader(app: Application, request: Request) -> Response:
    """Labels and reports are the business of the worker that watches the predictions of all."""
    assert app.control.others is not None
    target = request.target.decode("latin-1")
    answer = await app.control.others.leader(request.method.decode(), target, bytes(request.body))
    return Response(answer.status, [answer.body])


async def _json(work: Coroutine[Any, Any, Any]) -> Response:
    return Response.json(await work)


# ---- predictions


def infer(app: Application, request: Request, names: Names, respond: Respond) -> None:
    model = app.inference.admit(names["name"], names.get("version"))
    request.answered_by = (model.name, model.version)
    ticket = request.ticket = Ticket(request.received, drawn="version" not in names)
    encoding = _content_encoding(request) if b"content-encoding" in request.headers else None
    if encoding is None:
        _infer(app, model, request, ticket, respond)
        return
    limit = app.inference.limits.max_decompressed

    def unpacked(body: memoryview) -> None:
        if request.charge is not None:
            request.charge(len(body))
        request.body = body
        _infer(app, model, request, ticket, respond)

    def failed(error: Exception) -> None:
        respond(Response.error(app.inference.failed(model, ticket, error)))

    # In a thread: what is behind a small body may be large.
    app.inference.in_thread(model, lambda: decompress(request.body, encoding, limit), unpacked, failed)


def _infer(app: Application, model: Model, request: Request, ticket: Ticket, respond: Respond) -> None:
    try:
        length, body = json_length(request), request.body
        if is_costly(body, length):
            refuse_large_json(len(body) if length is None else length, model.target)
            request.body = EMPTY  # what is large is given back by the thread that read it
            app.inference.read_large(
                model,
                body,
                length,
                lambda asked: _ask(app, model, asked, request, ticket, respond),
                lambda error: respond(Response.error(app.inference.failed(model, ticket, error))),
            )
            return
        asked = parse(body, length, model.target)
    except Exception as error:
        respond(Response.error(app.inference.failed(model, ticket, error)))
        return
    _ask(app, model, asked, request, ticket, respond)


def _ask(
    app: Application, model: Model, asked: InferRequest, request: Request, ticket: Ticket, respond: Respond
) -> None:
    request.body = EMPTY  # what is needed of it is in the tensors
    accepted = request.headers.get(b"accept-encoding")
    app.inference.infer(
        model,
        asked,
        ticket,
        write=lambda tensors: _tensors(model, asked, tensors, accepted),
        answer=respond,
        refuse=lambda refusal: respond(Response.error(refusal)),
    )


def _tensors(model: Model, asked: InferRequest, tensors: Arrays, accepted: bytes | None) -> Response:
    encoded = encode(model.name, model.version, asked, tensors, model.class_names)
    response = Response(200, encoded.parts)
    if encoded.header_length is not None:
        response.content_type = b"application/octet-stream"
        response.headers.append((b"inference-header-content-length", str(encoded.header_length).encode()))
    # Only for a caller that names gzip or deflate alone, as Triton's client does when asked to. Browsers and HTTP
    # libraries offer compression with everything; for a few hundred bytes it would cost more than it saves.
    if accepted in (b"gzip", b"deflate"):
        response.parts = [compress(response.parts, accepted.decode())]
        response.headers.append((b"content-encoding", accepted))
    return response


def predict(app: Application, request: Request, names: Names, respond: Respond) -> None:
    query = _query(request.target)
    name = names.get("name") or (query.pop("model") if "model" in query else None)
    request_id = query.pop("id", None)
    model = app.inference.admit(name, names.get("version"))
    request.answered_by = (model.name, model.version)
    if request_id == "":
        raise BadInput("`id` is empty; leave it out or give one")
    if b"content-encoding" in request.headers:
        raise UnknownEncoding("pictures are compressed already; send them without Content-Encoding")
    kind, body = request.headers.get(b"content-type", b""), request.body
    ticket = request.ticket = Ticket(request.received, drawn="version" not in names)

    def read() -> Pictures:
        return picture_api.read(body, kind, query, request_id, app.inference.limits)

    def go_on(asked: Pictures) -> None:
        app.inference.predict(
            model,
            asked,
            ticket,
            write=lambda result, id_: Response.json(picture_api.body(model, asked, result, id_)),
            answer=respond,
            refuse=lambda refusal: respond(Response.error(refusal)),
        )

    if len(body) <= LARGE_FORM:
        go_on(read())
        return
    request.body = EMPTY
    app.inference.in_thread(model, read, go_on, lambda error: respond(Response.error(Refusal.of(error))))


# ---- what the head says


def _which(names: Names) -> dict[str, Any]:
    return {"name": names["name"], "version": names.get("version")}


def _content_encoding(request: Request) -> str | None:
    value = request.headers.get(b"content-encoding")
    return None if value is None else value.decode("latin-1").strip().lower()


def _query(target: bytes) -> dict[str, str]:
    """Parameters of the address; an empty one is kept, so that it is refused and not taken as left out."""
    pairs = parse_qsl(target.partition(b"?")[2].decode("ascii", "replace"), keep_blank_values=True)
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        again = next(name for name in names if names.count(name) > 1)
        raise BadInput(f'the parameter "{again[:60]}" is there twice')
    return found


def json_length(request: Request) -> int | None:
    length = request.headers.get(b"inference-header-content-length")
    if length is None:
        return None
    if not length.isdigit() or len(length) > 18:
        raise BadInput("Inference-Header-Content-Length must be the number of bytes of the JSON")
    return int(length)
