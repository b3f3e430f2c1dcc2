"""Messages without the place of folders on this machine: a page may be open on a screen far away."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

# An absolute path inside a sentence: up to a blank or what closes a quotation, never the tail of a name or an address.
_ABSOLUTE = re.compile(r"(?<![\w.:/~-])/(?P<first>[^/\s'\"`,;:()]+)/(?:[^/\s'\"`;:()]+/)*(?P<last>[^/\s'\"`,;:()]*)")


def without_folders(text: str, folders: Iterable[Path] = ()) -> str:
    """Paths below one of the folders as they read from it, other absolute ones by their last name."""
    for folder in sorted(map(str, folders), key=len, reverse=True):
        if len(folder) > 1:
            text = text.replace(f"{folder}{os.sep}", "").replace(folder, os.path.basename(folder))
    return _ABSOLUTE.sub(_last_name, text)


def _last_name(found: re.Match[str]) -> str:
    """Only where it begins with a folder of this machine: /v2/models is the address of a server."""
    if not os.path.isdir(f"/{found['first']}"):
        return found[0]
    return found["last"] or found[0].rstrip("/").rpartition("/")[2]
