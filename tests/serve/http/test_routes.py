"""The table of routes and the OpenAPI document are one thing, walked from both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant.serve.access import Access, Token
from calibrant.serve.control import Control
from calibrant.serve.http.app import Application
from calibrant.serve.http.message import Request, Response
from calibrant.serve.http.openapi.document import document
from calibrant.serve.http.routes import ROUTES, Router
from calibrant.serve.inference import Inference
from calibrant.serve.limits import Limits
from calibrant.serve.models.model import Model
from calibrant.serve.models.repository import Repository
from calibrant.serve.protocol.errors import NotFound

NAMES = {"name": "birds", "version": "1"}
LISTED = [(address, route) for route in ROUTES if route.needs != "workers" for address in route.addresses]
WHOLE = document(["birds"], admin=True, monitored=True, guarded=True)


@pytest.fixture(scope="module")
def application(model_file: Path) -> Iterator[Application]:
    repository = Repository()
    inference = Inference(repository, Limits())
    model = Model.load(model_file, threads=1, deliver=inference.deliver)
    repository.add(model)
    yield Application(inference, Control(repository), Access([Token.of_all_rights("secret")]))
    inference.close()
    model.batcher.close()


def _ask(app: Application, verb: bytes, path: str, **headers: bytes) -> Response:
    async def main() -> Response:
        app.inference.loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = app.inference.loop.create_future()
        app(Request(verb, path.encode(), headers={k.encode(): v for k, v in headers.items()}), answer.set_result)
        return await asyncio.wait_for(answer, 60)

    return asyncio.run(main())


def test_every_route_is_in_the_document_with_its_verb() -> None:
    found = {(path, verb) for path, verbs in WHOLE["paths"].items() for verb in verbs}
    assert found == {(address, route.verb.decode().lower()) for address, route in LISTED}
    assert len(found) == len(LISTED)  # no address twice


def test_every_path_of_the_document_is_routed_to_its_record() -> None:
    router = Router()
    for path, verbs in WHOLE["paths"].items():
        route, names = router.find(path.format(**NAMES).encode())
        assert path in route.addresses
        assert list(verbs) == [route.verb.decode().lower()]
        assert names == {k: v for k, v in NAMES.items() if f"{{{k}}}" in path}


@pytest.mark.parametrize(("address", "route"), LISTED, ids=lambda x: x if isinstance(x, str) else "")
def test_every_route_answers_its_verb_and_refuses_others(address: str, route: Any, application: Application) -> None:
    path, token = address.format(**NAMES), b"Bearer secret"
    reply = _ask(application, route.verb, path, authorization=token)
    # Bodies are missing (400); nothing is monitored (404, by name); loading is off (403).
    expected = {"monitor": {404}, "admin": {403}}.get(route.needs, {200, 400})
    assert reply.status in expected
    assert b"nothing is served" not in bytes(reply.parts[0])
    assert b"a model has no" not in bytes(reply.parts[0])
    other = _ask(application, b"PATCH", path, authorization=token)
    assert (other.status, other.headers) == (405, [(b"allow", route.verb)])


@pytest.mark.parametrize(("address", "route"), LISTED, ids=lambda x: x if isinstance(x, str) else "")
def test_the_document_says_what_needs_the_token(address: str, route: Any, application: Application) -> None:
    reply = _ask(application, route.verb, address.format(**NAMES))
    operation = WHOLE["paths"][address][route.verb.decode().lower()]
    assert (reply.status == 401) is not route.open
    assert (operation.get("security") == []) is route.open
    assert route.open is address.startswith("/v2/health/")


def test_what_the_server_does_not_have_is_not_listed() -> None:
    bare = document(["birds"], admin=False, monitored=False)
    assert {path for path in WHOLE["paths"] if path not in bare["paths"]} == {
        "/v2/repository/models/{name}/load", "/v2/repository/models/{name}/unload",
        "/v2/repository/models/{name}/canary/decision",
        "/v2/models/{name}/feedback", "/v2/models/{name}/versions/{version}/feedback",
        "/v2/models/{name}/monitor", "/v2/models/{name}/versions/{version}/monitor",
    }  # fmt: skip
    assert "security" not in bare


def test_what_workers_ask_each_other_is_not_there_for_callers(application: Application) -> None:
    assert _ask(application, b"POST", "/internal/flush", authorization=b"Bearer secret").status == 404
    assert not any("internal" in path for path in WHOLE["paths"])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (b"/v2/models/birds/infr", 'a model has no "infr"; did you mean "infer"?'),
        (b"/v2/models/birds/versions/2/stat", 'a model has no "stat"; did you mean "stats"?'),
        (b"/v2/health/alive", 'nothing is served at "/v2/health/alive"; did you mean "v2/health/live"?'),
    ],
)
def test_an_address_that_is_not_there_names_the_nearest(path: bytes, says: str) -> None:
    with pytest.raises(NotFound) as caught:
        Router().find(path)
    assert caught.value.message == says


@pytest.mark.parametrize(
    "path", [b"/v2/models/stats", b"/v2/models/stats/", b"http://host/v2/models/stats", b"//v2/models/stats"]
)
def test_a_fixed_address_comes_before_a_model_of_that_name(path: bytes) -> None:
    route, names = Router().find(path)
    assert (route.path, names) == ("/v2/models/stats", {})


def test_a_models_name_is_unquoted() -> None:
    assert Router().find(b"/v2/models/a%20b%2Fc/infer")[1] == {"name": "a b/c"}
