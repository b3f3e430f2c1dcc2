"""Log lines as JSON."""

from __future__ import annotations

import json
import logging
import sys

from calibrant.serve.json_log import JsonLines


def record(text: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("calibrant.serve.x", logging.WARNING, __file__, 1, text, arguments, info)


def test_a_line_is_one_object_whatever_the_message_holds() -> None:
    line = JsonLines().format(record('a "%s"\nof two lines', "birds"))
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("time") > 1e9
    assert told == {"level": "WARNING", "logger": "calibrant.serve.x", "message": 'a "birds"\nof two lines'}


def test_the_worker_and_the_traceback_are_told() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        error = sys.exc_info()[1]
    told = json.loads(JsonLines(3).format(record("failed", error=error)))
    assert told["worker"] == 3
    assert told["error"].endswith("ValueError: broken")
