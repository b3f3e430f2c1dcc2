"""Log lines as JSON, one object a line, for what collects logs."""

from __future__ import annotations

import json
import logging


class JsonLines(logging.Formatter):
    """`time` in seconds since 1970, `level`, `logger`, `message`; `worker` and `error` where there is one."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._worker,
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
