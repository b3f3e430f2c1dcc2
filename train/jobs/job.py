"""What a job is, and the file of its result."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Job(Protocol):
    """A frozen, picklable description of work whose result depends on nothing else."""

    @property
    def key(self) -> str:
        """A hash of all that the result depends on."""
        ...

    def run(self, out: Path) -> dict[str, Any]:
        """The result, as JSON values. `out` is the folder of all results; what is kept besides them goes there too."""
        ...


def result_file(out: Path, key: str) -> Path:
    return out / "runs" / f"{key}.json"


def read_result(out: Path, key: str) -> dict[str, Any] | None:
    """The result of a job that is finished."""
    try:
        result: dict[str, Any] = json.loads(result_file(out, key).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        log.warning("%s is damaged and will be made again", result_file(out, key))
        return None
    return result


def changed(table: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that differ from the defaults, tables within tables: what a key is made of, so that a setting added
    to Calibrant later keeps the results of before.
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and isinstance(default.get(key), Mapping) and default[key]:
            inner = changed(value, default[key])
            found |= {key: inner} if inner else {}
        elif value != default.get(key):
            found[key] = value
    return found
