"""Foreign words on a page: names of runs, classes and files, and error texts, shown as they are.

Streamlit reads most texts as Markdown; a class called `![x](http://host/p.png)` would make the browser fetch a picture.
"""

from __future__ import annotations

import re
import unicodedata

# Every ASCII punctuation character; Markdown takes a backslash before any of them as "this is no markup".
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
# A backslash does not stop the automatic link of a bare address, a word joiner (no width) after its colon or dot does.
_ADDRESS = re.compile(r"(?i)(\bhttps?|\bftp|\bmailto|\bxmpp)(:)|(\bwww)(\.)")
_AT = re.compile(r"(?<=\S)@(?=\S)")
_JOINER = "\u2060"
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"


def plain(text: object) -> str:
    """The text as Markdown that shows exactly these characters, on one line."""
    line = isolated(" ".join(str(text).split()))
    line = _ADDRESS.sub(lambda m: (m[1] or m[3]) + _JOINER + (m[2] or m[4]), line)
    line = _AT.sub(_JOINER + "@", line)
    return _PUNCTUATION.sub(r"\\\1", line)


def isolated(text: str) -> str:
    """A text that runs from right to left, between marks without width: what stands beside it keeps its place."""
    if not any(unicodedata.bidirectional(c) in ("R", "AL", "RLE", "RLO") for c in text):
        return text
    return f"{_ISOLATE}{text}{_END_OF_ISOLATE}"


def short(text: str, length: int = 40) -> str:
    """The text with its middle left out where it is longer; both ends of a path matter."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"
