"""GET /openapi.json: the table of routes for tools and generated clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from calibrant._version import __version__
from calibrant.serve.http.openapi.answers import SCHEMAS, answer
from calibrant.serve.http.openapi.schemas import ANY, parameter
from calibrant.serve.http.routes import ROUTES, Route


def document(models: Sequence[str], *, admin: bool, monitored: bool, guarded: bool = False) -> dict[str, Any]:
    """`admin`, `monitored`: whether the addresses that need them are of use here. `guarded`: by a token."""
    paths: dict[str, Any] = {}
    there = {"": True, "admin": admin, "monitor": monitored}
    for route in ROUTES:
        for address in route.addresses if there.get(route.needs, False) else ():
            operation: dict[str, Any] = {"operationId": operation_id(route, address)}
            operation |= _operation(route, [*_in_path(address, models), *route.parameters])
            if guarded and route.open:
                operation["security"] = []
            paths[address] = {route.verb.decode().lower(): operation}
    components: dict[str, Any] = {"schemas": SCHEMAS}
    lock: dict[str, Any] = {}
    if guarded:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        lock = {"security": [{"bearer": []}]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Calibrant",
            "version": __version__,
            "description": "Open Inference Protocol V2 and /predict.",
        },
        "paths": paths,
        "components": components,
        **lock,
    }


def operation_id(route: Route, address: str) -> str:
    """The handler's name; of what is about one model or version too, with that behind it."""
    name = route.handler.__name__
    if "{version}" in address:
        return f"{name}_of_version"
    shared = sum(other.handler is route.handler for other in ROUTES) > 1
    return f"{name}_of_model" if shared and "{name}" in address else name


def _in_path(address: str, models: Sequence[str]) -> Iterator[dict[str, Any]]:
    known: dict[str, tuple[dict[str, Any], str]] = {
        "name": ({"type": "string", "enum": list(models)}, "Name of the model."),
        "version": ({"type": "string"}, "One of the versions in its metadata."),
    }
    for name in re.findall(r"{(\w+)}", address):
        schema, text = known[name]
        yield parameter(name, "path", schema, text, required=True)


def _operation(route: Route, parameters: Sequence[Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.text,
        "responses": {
            "200": {"description": "The answer.", "content": route.answer or ANY},
            "default": {"description": "An error.", "content": answer("Error")},
        },
    }
    if parameters:
        operation["parameters"] = list(parameters)
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": route.body}
    return operation
