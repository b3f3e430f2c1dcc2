"""The addresses of the server: one record each. Routing, 404 and 405, the OpenAPI document and /docs are made of it.

To add an address, write its handler (handlers.py) and its record here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from calibrant.errors import did_you_mean
from calibrant.serve.http import handlers as h
from calibrant.serve.http.message import Request, Respond, Response
from calibrant.serve.http.openapi import schemas as s
from calibrant.serve.http.openapi.answers import answer as a
from calibrant.serve.processes.other_workers import CANARIES, FLUSH
from calibrant.serve.protocol.errors import NotFound

if TYPE_CHECKING:
    from calibrant.serve.http.app import Application

Names = dict[str, str]  # what stands in the address at {name} and {version}
# Gives the response, or work that will give it; or None, and calls `respond` later.
Handler = Callable[["Application", Request, Names, Respond], Response | Coroutine[Any, Any, Response] | None]
GET, POST = b"GET", b"POST"
MODEL = "/v2/models/{name}"
VERSION = MODEL + "/versions/{version}"


@dataclass(frozen=True)
class Route:
    verb: bytes  # GET answers HEAD too
    path: str
    handler: Handler
    text: str
    parameters: Sequence[Any] = ()  # besides those in the path
    body: Any = None
    answer: Any = None  # any JSON where nothing is said
    open: bool = False  # to callers without a token
    right: str = "infer"  # that the token must have
    most: int = 1 << 20  # bytes of its body; 0: as many as any body may have
    needs: str = ""  # listed where the server has it: "admin", "monitor"; never to callers: "workers"

    @cached_property
    def of_a_model(self) -> bool:
        return self.path.startswith(MODEL)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The path; what is about a model is also there for each of its versions."""
        return (self.path, VERSION + self.path[len(MODEL) :]) if self.of_a_model else (self.path,)


_PREDICT = "Labels of pictures, with calibrated confidence."
ROUTES: tuple[Route, ...] = (
    Route(GET,  "/v2/health/live",   h.live,       "Is the process up?", open=True, answer=a("Live")),
    Route(GET,  "/v2/health/ready",  h.ready,      "Are all models ready?", open=True, answer=a("Ready")),
    Route(GET,  "/v2",               h.server,     "Name, version and extensions of the server.", answer=a("Server")),
    Route(GET,  "/v2/models/stats",  h.statistics, "Counts and times of all models.", answer=a("Statistics")),
    Route(POST, "/predict",          h.predict,    _PREDICT, [s.MODEL, *s.KNOBS], s.PICTURES, s.PREDICTIONS,
          most=0),
    Route(POST, "/v2/repository/index", h.index,   "The models and their states.", answer=a("Index")),
    Route(GET,  "/metrics",          h.metrics,    "Prometheus metrics.", answer=s.TEXT),
    Route(GET,  MODEL,               h.metadata,   "Inputs, outputs and calibration of a model.", answer=a("Model")),
    Route(GET,  MODEL + "/ready",    h.model_ready, "Is the model ready?", answer=a("ModelReady")),
    Route(GET,  MODEL + "/config",   h.config,     "Configuration as Triton words it.", answer=a("ModelConfig")),
    Route(GET,  MODEL + "/stats",    h.statistics, "Counts and times of a model.", answer=a("Statistics")),
    Route(POST, MODEL + "/infer",    h.infer,      "Inference on tensors.", [s.JSON_LENGTH], s.INFER, s.INFERRED,
          most=0),
    Route(POST, MODEL + "/predict",  h.predict,    _PREDICT, s.KNOBS, s.PICTURES, s.PREDICTIONS,
          most=0),
    Route(POST, MODEL + "/feedback", h.feedback,   "True labels by request id.", body=s.FEEDBACK, needs="monitor",
          most=h.MOST_FEEDBACK, right="feedback", answer=a("LabelsTaken")),
    Route(GET,  MODEL + "/monitor",  h.monitor,    "Accuracy, calibration and drift.", needs="monitor",
          answer=a("Monitor")),
    Route(POST, "/v2/repository/models/{name}/load",   h.load,   "Load a model.", needs="admin", right="admin",
          answer=a("Done")),
    Route(POST, "/v2/repository/models/{name}/unload", h.unload, "Unload a model.", needs="admin", right="admin",
          answer=a("Done")),
    Route(GET,  "/v2/repository/models/{name}/canary", h.canary, "A model's canary, and what was decided before.",
          answer=a("Canary")),
    Route(POST, "/v2/repository/models/{name}/canary/decision", h.decide, "Promote a canary, or roll it back.",
          body=s.DECISION, needs="admin", right="admin", answer=a("Canary")),
    Route(GET,  "/",                 h.page,       "A page to try a picture.", answer=s.HTML),
    Route(GET,  "/docs",             h.docs,       "These addresses, to read.", answer=s.HTML),
    Route(GET,  "/openapi.json",     h.openapi,    "These addresses, for tools.", answer=a("OpenApi")),
    Route(GET,  CANARIES,            h.canary_counts, "Requests of canaries.", needs="workers"),
    Route(POST, FLUSH,               h.flush,      "Predictions so far are in the log.", needs="workers"),
)  # fmt: skip


class Router:
    """Finds the record of an address."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self._fixed = {route.path.strip("/"): route for route in routes if "{" not in route.path}
        self._open_ended = [(a.strip("/").split("/"), r) for r in routes for a in r.addresses if "{" in a]
        self._of_models = [r.path[len(MODEL) + 1 :] for r in routes if r.of_a_model]
        self._found: dict[bytes, tuple[Route, Names]] = {}

    def find(self, path: bytes) -> tuple[Route, Names]:
        found = self._found.get(path)
        if found is None:
            found = self._find(path)
            if len(self._found) < 1024:
                self._found[path] = found
        return found

    def _find(self, path: bytes) -> tuple[Route, Names]:
        parts = _parts(path)
        if (route := self._fixed.get("/".join(parts))) is not None:
            return route, {}
        for template, route in self._open_ended:
            if (names := _match(template, parts)) is not None:
                return route, names
        raise self.unknown(path)

    def unknown(self, path: bytes) -> NotFound:
        parts = _parts(path)
        match parts:
            case ["v2", "models", _, "versions", _, *rest] | ["v2", "models", _, *rest]:
                said = "/".join(rest)
                return NotFound(f'a model has no "{said[:60]}"; {did_you_mean(said, self._of_models)}')
        shown = path[:100].decode("ascii", "replace")
        known = [name for name, route in self._fixed.items() if name and route.needs != "workers"]
        return NotFound(
            f'nothing is served at "{shown}"; {did_you_mean("/".join(parts)[:100], [*known, "v2/models/NAME/infer"])}'
        )


def _parts(path: bytes) -> list[str]:
    if path[:7].lower() == b"http://" or path[:8].lower() == b"https://":  # the whole address
        path = b"/" + path.split(b"://", 1)[1].partition(b"/")[2]
    return [unquote(p) for p in path.decode("ascii", "replace").strip("/").split("/")]


def _match(template: list[str], parts: list[str]) -> Names | None:
    """What stands at the template's braces, or None where something else differs."""
    if len(template) != len(parts):
        return None
    names: Names = {}
    for want, got in zip(template, parts, strict=True):
        if want.startswith("{"):
            names[want[1:-1]] = got
        elif want != got:
            return None
    return names
