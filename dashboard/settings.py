"""What the command line tells the app: which folders it may read. Crosses over as arguments of the script."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

_DEMO = "demo is open"


@dataclass(frozen=True)
class Settings:
    """`root`: the runs; nothing outside of it is read but `images`, the picture folders that the user named, and
    `demo`, what `calibrant demo` left where the dashboard was started."""

    root: Path
    images: tuple[Path, ...] = ()
    demo: Path | None = None

    def to_arguments(self) -> list[str]:
        demo = None if self.demo is None else str(self.demo)
        return [json.dumps({"root": str(self.root), "images": [str(p) for p in self.images], "demo": demo})]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Settings:
        if len(arguments) != 1:
            raise ValueError("the app is started by calibrant dashboard")
        block = json.loads(arguments[0])
        demo = None if block["demo"] is None else Path(block["demo"])
        return cls(Path(block["root"]), tuple(Path(p) for p in block["images"]), demo)


def find_demo(here: Path, root: Path) -> Path | None:
    """The finished demo in the working directory, unless it lies below the runs and is seen anyhow."""
    demo = here / "calibrant-demo"
    if not (demo / "demo.json").is_file() or not (demo / "predictions").is_dir():
        return None
    found = demo.resolve()
    return None if found.is_relative_to(root.resolve()) else found


def given() -> Settings:
    """What the command line said."""
    return Settings.from_arguments(sys.argv[1:])


def current() -> Settings:
    """The same, with the demo in the place of the runs where this reader has opened it."""
    found = given()
    return replace(found, root=found.demo) if found.demo is not None and demo_is_open() else found


def demo_is_open() -> bool:
    import streamlit as st

    return bool(st.session_state.get(_DEMO))


def open_demo(on: bool) -> None:
    import streamlit as st

    st.session_state[_DEMO] = on
