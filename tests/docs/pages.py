"""A page of the docs as a reader meets it: its commands and its Python, in its order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Block:
    kind: str  # "calibrant", "python", "toml"
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)[1:]


def blocks(page: Path) -> Iterator[Block]:
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    language = None
    code: list[str] = []
    for line in text.splitlines():
        fence = re.match(r"```(\w*)", line)
        if fence and language is None:
            language, code = fence[1], []
        elif fence:
            if language in ("python", "toml"):
                yield Block(str(language), "\n".join(code))
            language = None
        elif language is not None:
            code.append(line)
            if language in ("", "sh", "bash", "console", "text") and re.match(r"(\$ )?calibrant ", line):
                yield Block("calibrant", line.removeprefix("$ "))
        elif re.match(r"    \s*(\$ )?calibrant ", line):
            yield Block("calibrant", line.strip().removeprefix("$ "))
