"""What the command line tells the app: which folders it may read. Crosses over as arguments of the script."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """`root`: the runs; nothing outside of it is read but `images`, the picture folders that the user named."""

    root: Path
    images: tuple[Path, ...] = ()

    def to_arguments(self) -> list[str]:
        return [json.dumps({"root": str(self.root), "images": [str(p) for p in self.images]})]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Settings:
        if len(arguments) != 1:
            raise ValueError("the app is started by calibrant dashboard")
        block = json.loads(arguments[0])
        return cls(Path(block["root"]), tuple(Path(p) for p in block["images"]))


def current() -> Settings:
    """Those of the running app."""
    return Settings.from_arguments(sys.argv[1:])
