"""`settings` in helm/values.schema.json from the options of `calibrant serve`: python deploy/settings_schema.py

A test compares the two, so that they stay the same.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from calibrant.serve.cli import serve
from calibrant.serve.config_file import NOT_IN_A_FILE

SCHEMA = Path(__file__).parent / "helm" / "values.schema.json"
# What other values of the chart say, what the chart rules out, and a secret, which belongs in a Secret.
NOT_SETTINGS = (
    "models", "name", "host", "port", "grpc-port", "engine", "ray-address", "token", "token-file", "tls-cert",
    "tls-key", "tls-client-ca", "feedback-log", "keep-gib", "ready-file",
)  # fmt: skip
_PATTERNS = {"log-to": "^[a-z][a-z0-9+.-]*://.", "canary": "^.+@.+=[0-9.]+$", "shadow": "^.+@.+=[0-9.]+$"}
_BLOCK = re.compile(r'    "settings": \{\n.*?\n    \},\n', re.DOTALL)


def settings() -> dict[str, Any]:
    """A schema for each setting, by its name on the command line."""
    by_name = {parameter.opts[0].removeprefix("--"): parameter for parameter in serve.params}
    return {name: _schema(by_name[name]) for name in sorted(by_name) if name not in (*NOT_SETTINGS, *NOT_IN_A_FILE)}


def _schema(parameter: click.Parameter) -> dict[str, Any]:
    kind = parameter.type
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return {"type": "boolean"}
    if isinstance(kind, click.IntRange):
        return {"type": "integer", **_range(kind)}
    if isinstance(kind, click.FloatRange):  # of which `helm --set` makes text
        return {"anyOf": [{"type": "number", **_range(kind)}, {"type": "string", "pattern": _pattern(kind)}]}
    if isinstance(kind, click.Choice):
        return {"enum": list(kind.choices)}
    pattern = _PATTERNS.get(parameter.opts[0].removeprefix("--"))
    one = {"type": "string", "minLength": 1} if pattern is None else {"type": "string", "pattern": pattern}
    return {"type": "array", "items": one} if parameter.multiple else one


def _range(kind: click.IntRange | click.FloatRange) -> dict[str, Any]:
    low = "exclusiveMinimum" if kind.min_open else "minimum"
    return {key: value for key, value in ((low, kind.min), ("maximum", kind.max)) if value is not None}


def _pattern(kind: click.FloatRange) -> str:
    """Decimal numbers from 0 or a negative power of ten on, up to 1 or without an end."""
    text = f"{float(kind.min or 0):f}".rstrip("0")
    if kind.max not in (None, 1) or not re.fullmatch(r"0\.(0*1)?", text):
        raise ValueError(f"no pattern for {kind}")
    if kind.min:
        small = rf"0?\.0{{0,{len(text) - 3}}}[1-9][0-9]*"
    else:
        small = r"0?\.[0-9]*[1-9][0-9]*" if kind.min_open else r"0|0?\.[0-9]+"
    large = r"1(\.0+)?" if kind.max == 1 else r"[1-9][0-9]*(\.[0-9]+)?"
    return f"^({small}|{large})$"


def written(text: str) -> str:
    """The whole schema with the settings of now, one a line."""
    lines = ",\n".join(f"        {json.dumps(name)}: {json.dumps(schema)}" for name, schema in settings().items())
    head = '    "settings": {\n      "type": "object", "additionalProperties": false,\n      "properties": {\n'
    (before, after) = _BLOCK.split(text)
    return f"{before}{head}{lines}\n      }}\n    }},\n{after}"


if __name__ == "__main__":
    SCHEMA.write_text(written(SCHEMA.read_text()))
